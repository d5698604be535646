"""What a request to ZooKeeper failed with: our sentence for people, ZooKeeper's own for its shell."""

from typing import Final

from headrace.client.errors import ClientError
from headrace.protocol.zookeeper import codes

# By code: what ZooKeeper's client says, and what we say of a path.
_KNOWN: Final[dict[int, tuple[str, str]]] = {
    codes.SYSTEM_ERROR: ("SystemError", "{} was not changed: the server cannot write; see its log"),
    codes.RUNTIME_INCONSISTENCY: ("RuntimeInconsistency", "{} was not reached: an earlier step failed"),
    codes.DATA_INCONSISTENCY: ("DataInconsistency", "{}: the server found its data inconsistent; see its log"),
    codes.CONNECTION_LOSS: ("ConnectionLoss", "{}: the connection broke before the answer came"),
    codes.MARSHALLING_ERROR: ("MarshallingError", "{}: the server could not read the request"),
    codes.UNIMPLEMENTED: ("Unimplemented", "{}: the server does not know this request"),
    codes.OPERATION_TIMEOUT: ("OperationTimeout", "{}: no answer came in time"),
    codes.BAD_ARGUMENTS: ("BadArguments", "{} cannot be used so: the path or an argument is not valid"),
    codes.NEW_CONFIG_NO_QUORUM: ("NewConfigNoQuorum", "the new configuration has no quorum"),
    codes.RECONFIG_IN_PROGRESS: ("ReconfigInProgress", "another change of the configuration is under way"),
    codes.API_ERROR: ("APIError", "{}: the server answered with an API error"),
    codes.NO_NODE: ("NoNode", "{} does not exist"),
    codes.NO_AUTH: ("NoAuth", "{}: no permission; show who you are (addauth), or change its ACL"),
    codes.BAD_VERSION: ("BadVersion", "{} has another version than the one given"),
    codes.NO_CHILDREN_FOR_EPHEMERALS: ("NoChildrenForEphemerals", "{}: an ephemeral node has no children"),
    codes.NODE_EXISTS: ("NodeExists", "{} exists already"),
    codes.NOT_EMPTY: ("Directory not empty", "{} has children; delete them first"),
    codes.SESSION_EXPIRED: ("Session expired", "{}: the session has ended; connect again"),
    codes.INVALID_CALLBACK: ("Invalid callback", "{}: invalid callback"),
    codes.INVALID_ACL: ("InvalidACL", "{}: the ACL is not valid"),
    codes.AUTH_FAILED: ("AuthFailed", "{}: the server did not accept the credentials"),
    codes.SESSION_MOVED: ("Session moved", "{}: the session has moved to another connection"),
    codes.NOT_READ_ONLY: ("Not a read-only call", "{}: the server is read-only"),
    codes.EPHEMERAL_ON_LOCAL_SESSION: ("Ephemeral node on local session", "{}: a local session has no ephemeral nodes"),
    codes.NO_WATCHER: ("No such watcher", "{} is not watched so"),
    codes.RECONFIG_DISABLED: ("Reconfig is disabled", "the server allows no change of its configuration"),
    codes.SESSION_NEEDS_SASL: (
        "Session closed because client failed to authenticate",
        "{}: the server asks for a SASL login, which is not supported",
    ),
    codes.QUOTA_EXCEEDED: ("Quota has exceeded", "{}: a quota does not allow it"),
    codes.THROTTLED: ("Op throttled due to high load", "{}: the server refuses it under its load; try again"),
}


class ZooKeeperError(ClientError):
    """A request that was not done, or, with CONNECTION_LOSS, may or may not have been done."""

    def __init__(self, code: int, path: str = "", reason: str = "") -> None:
        java, ours = _KNOWN.get(code, (f"Unknown error {code}", f"{{}}: error {code} of ZooKeeper"))
        said = ours.format(path or "the request")
        super().__init__(f"{said} ({reason})" if reason else said)
        self.code = code
        self.path = path
        self.java = f"KeeperErrorCode = {java} for {path}" if path else f"KeeperErrorCode = {java}"


class TooManyRequestsError(ClientError):
    """A bound of the client itself."""
