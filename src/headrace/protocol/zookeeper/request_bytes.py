"""Requests as a client sends them: from the records of `requests` to whole frames."""

from typing import Final

from headrace.protocol.zookeeper import codes, requests
from headrace.protocol.zookeeper.acl import acl_bytes
from headrace.protocol.zookeeper.jute import (
    boolean_bytes,
    buffer_bytes,
    int_bytes,
    long_bytes,
    string_bytes,
    vector_bytes,
)

Step = requests.Create | requests.Delete | requests.SetData | requests.Check | requests.Read

_WATCHABLE: Final = frozenset((codes.EXISTS, codes.GET_DATA, codes.GET_CHILDREN, codes.GET_CHILDREN2))
_END: Final = int_bytes(-1) + boolean_bytes(True) + int_bytes(-1)
_KINDS: Final[dict[type, int]] = {
    requests.Delete: codes.DELETE,
    requests.SetData: codes.SET_DATA,
    requests.SetAcl: codes.SET_ACL,
    requests.Check: codes.CHECK,
    requests.Multi: codes.MULTI,
    requests.MultiRead: codes.MULTI_READ,
    requests.AddWatch: codes.ADD_WATCH,
    requests.Auth: codes.AUTH,
    requests.Reconfig: codes.RECONFIG,
}


def connect_frame(asked: requests.Connect) -> bytes:
    body = int_bytes(asked.protocol) + long_bytes(asked.last_zxid) + int_bytes(asked.timeout_ms)
    body += long_bytes(asked.session) + buffer_bytes(asked.password)
    if asked.read_only is not None:
        body += boolean_bytes(asked.read_only)
    return int_bytes(len(body)) + body


def request_frame(xid: int, request: requests.Request) -> bytes:
    body = int_bytes(xid) + int_bytes(kind_of(request)) + _body(request)
    return int_bytes(len(body)) + body


def kind_of(request: requests.Request | requests.Check) -> int:
    if isinstance(request, requests.SetWatches):
        # Servers before 3.6 know only the first three lists.
        return codes.SET_WATCHES2 if request.persistent or request.recursive else codes.SET_WATCHES
    if isinstance(request, requests.Create | requests.Read | requests.Watches | requests.Plain | requests.Unknown):
        return request.kind
    return _KINDS[type(request)]


def _body(request: requests.Request | requests.Check) -> bytes:
    if isinstance(request, requests.Read):
        watch = boolean_bytes(request.watch) if request.kind in _WATCHABLE else b""
        return string_bytes(request.path) + watch
    if isinstance(request, requests.Create | requests.Delete | requests.SetData | requests.SetAcl | requests.Check):
        return _change(request)
    if isinstance(request, requests.Multi | requests.MultiRead):
        return b"".join(map(_step, request.steps)) + _END
    if isinstance(request, requests.SetWatches):
        return _set_watches(request)
    if isinstance(request, requests.AddWatch):
        return string_bytes(request.path) + int_bytes(request.mode)
    if isinstance(request, requests.Watches):
        return string_bytes(request.path) + int_bytes(request.watcher)
    if isinstance(request, requests.Auth):
        return int_bytes(0) + string_bytes(request.scheme) + buffer_bytes(request.credentials)
    if isinstance(request, requests.Reconfig):
        lists = (request.joining, request.leaving, request.members)
        return b"".join(buffer_bytes(None) if each is None else string_bytes(each) for each in lists) + long_bytes(
            request.version
        )
    return b""


def _change(
    change: requests.Create | requests.Delete | requests.SetData | requests.SetAcl | requests.Check,
) -> bytes:
    path = string_bytes(change.path)
    if isinstance(change, requests.Create):
        body = path + buffer_bytes(change.data) + acl_bytes(change.acl) + int_bytes(change.flags)
        return body + long_bytes(change.ttl_ms) if change.kind == codes.CREATE_TTL else body
    if isinstance(change, requests.SetData):
        return path + buffer_bytes(change.data) + int_bytes(change.version)
    if isinstance(change, requests.SetAcl):
        return path + acl_bytes(change.acl) + int_bytes(change.version)
    return path + int_bytes(change.version)


def _step(step: Step) -> bytes:
    return int_bytes(kind_of(step)) + boolean_bytes(False) + int_bytes(-1) + _body(step)


def _set_watches(request: requests.SetWatches) -> bytes:
    lists = [request.data, request.exist, request.child]
    if kind_of(request) == codes.SET_WATCHES2:
        lists += [request.persistent, request.recursive]
    return long_bytes(request.last_zxid) + b"".join(
        vector_bytes([string_bytes(path) for path in paths]) for paths in lists
    )
