"""Paths of a client whose root is a node below the server's: added on the way out, taken away on the way back."""

from headrace.protocol.zookeeper import requests
from headrace.protocol.zookeeper.requests import Request
from headrace.protocol.zookeeper.results import Created, MultiDone, Paths, Result, StepResult

_WITHOUT_PATH = (requests.Plain, requests.Unknown, requests.Auth, requests.SetWatches, requests.Reconfig)


def outward(chroot: str, path: str) -> str:
    if not chroot:
        return path
    return chroot if path == "/" else chroot + path


def inward(chroot: str, path: str) -> str:
    """A path outside of the chroot, as of `/zookeeper/config`, stays what it is."""
    if not chroot:
        return path
    if path == chroot:
        return "/"
    return path[len(chroot) :] if path.startswith(chroot + "/") else path


def outward_request(chroot: str, request: Request) -> Request:
    if not chroot or isinstance(request, _WITHOUT_PATH):
        return request
    if isinstance(request, requests.Multi):
        return requests.Multi(tuple(step._replace(path=outward(chroot, step.path)) for step in request.steps))
    if isinstance(request, requests.MultiRead):
        return requests.MultiRead(tuple(step._replace(path=outward(chroot, step.path)) for step in request.steps))
    return request._replace(path=outward(chroot, request.path))


def inward_result(chroot: str, request: Request, result: Result) -> Result:
    if not chroot:
        return result
    if isinstance(result, Created):
        return result._replace(path=inward(chroot, result.path))
    if isinstance(result, MultiDone):
        return MultiDone([_inward_step(chroot, each) for each in result.steps])
    if isinstance(request, requests.Read) and isinstance(result, str):
        return inward(chroot, result)  # sync
    if isinstance(result, Paths):
        return Paths([inward(chroot, each) for each in result.paths])
    return result


def _inward_step(chroot: str, step: StepResult) -> StepResult:
    return step._replace(path=inward(chroot, step.path)) if isinstance(step, Created) else step
