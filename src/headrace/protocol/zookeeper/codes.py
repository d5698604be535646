"""ZooKeeper's numbers: operations, errors, permissions, events, kinds of node. As in ZooKeeper 3.9."""

from typing import Final

# Operations of a request.
NOTIFICATION: Final = 0
CREATE: Final = 1
DELETE: Final = 2
EXISTS: Final = 3
GET_DATA: Final = 4
SET_DATA: Final = 5
GET_ACL: Final = 6
SET_ACL: Final = 7
GET_CHILDREN: Final = 8
SYNC: Final = 9
PING: Final = 11
GET_CHILDREN2: Final = 12
CHECK: Final = 13
MULTI: Final = 14
CREATE2: Final = 15
RECONFIG: Final = 16
CHECK_WATCHES: Final = 17
REMOVE_WATCHES: Final = 18
CREATE_CONTAINER: Final = 19
DELETE_CONTAINER: Final = 20
CREATE_TTL: Final = 21
MULTI_READ: Final = 22
AUTH: Final = 100
SET_WATCHES: Final = 101
SASL: Final = 102
GET_EPHEMERALS: Final = 103
GET_ALL_CHILDREN_NUMBER: Final = 104
SET_WATCHES2: Final = 105
ADD_WATCH: Final = 106
WHO_AM_I: Final = 107
CREATE_SESSION: Final = -10
CLOSE_SESSION: Final = -11
ERROR: Final = -1

# Numbers that stand where a request has its own.
NOTIFICATION_XID: Final = -1
PING_XID: Final = -2
AUTH_XID: Final = -4
SET_WATCHES_XID: Final = -8

# Errors of an answer; CONNECTION_LOSS is never sent: a client says so itself.
OK: Final = 0
SYSTEM_ERROR: Final = -1
RUNTIME_INCONSISTENCY: Final = -2
DATA_INCONSISTENCY: Final = -3
CONNECTION_LOSS: Final = -4
MARSHALLING_ERROR: Final = -5
UNIMPLEMENTED: Final = -6
OPERATION_TIMEOUT: Final = -7
BAD_ARGUMENTS: Final = -8
NEW_CONFIG_NO_QUORUM: Final = -13
RECONFIG_IN_PROGRESS: Final = -14
API_ERROR: Final = -100
NO_NODE: Final = -101
NO_AUTH: Final = -102
BAD_VERSION: Final = -103
NO_CHILDREN_FOR_EPHEMERALS: Final = -108
NODE_EXISTS: Final = -110
NOT_EMPTY: Final = -111
SESSION_EXPIRED: Final = -112
INVALID_ACL: Final = -114
AUTH_FAILED: Final = -115
INVALID_CALLBACK: Final = -113
SESSION_MOVED: Final = -118
NOT_READ_ONLY: Final = -119
EPHEMERAL_ON_LOCAL_SESSION: Final = -120
NO_WATCHER: Final = -121
RECONFIG_DISABLED: Final = -123
SESSION_NEEDS_SASL: Final = -124
QUOTA_EXCEEDED: Final = -125
THROTTLED: Final = -127

# Permissions of an access control list.
READ: Final = 1
WRITE: Final = 2
CREATE_PERMISSION: Final = 4
DELETE_PERMISSION: Final = 8
ADMIN: Final = 16
ALL_PERMISSIONS: Final = 31

# What a watch reports.
NODE_CREATED: Final = 1
NODE_DELETED: Final = 2
NODE_DATA_CHANGED: Final = 3
NODE_CHILDREN_CHANGED: Final = 4
DATA_WATCH_REMOVED: Final = 5  # these are never sent: a client tells its own watchers
CHILD_WATCH_REMOVED: Final = 6
PERSISTENT_WATCH_REMOVED: Final = 7
SYNC_CONNECTED: Final = 3  # the state that stands in each such event

# What a node is created as.
PERSISTENT: Final = 0
EPHEMERAL: Final = 1
SEQUENTIAL: Final = 2
EPHEMERAL_SEQUENTIAL: Final = 3
CONTAINER: Final = 4
WITH_TTL: Final = 5
SEQUENTIAL_WITH_TTL: Final = 6

# Which watches removeWatches and checkWatches mean.
WATCHER_CHILDREN: Final = 1
WATCHER_DATA: Final = 2
WATCHER_ANY: Final = 3
WATCHER_PERSISTENT: Final = 4
WATCHER_PERSISTENT_RECURSIVE: Final = 5

# Modes of addWatch.
PERSISTENT_WATCH: Final = 0
PERSISTENT_RECURSIVE_WATCH: Final = 1


class RefusedError(Exception):
    """A request that is answered with an error; nothing of it has happened."""

    def __init__(self, code: int, subject: str = "") -> None:
        super().__init__(f"{code} {subject}")
        self.code = code
        self.subject = subject
