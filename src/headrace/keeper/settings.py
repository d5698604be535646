"""`KeeperSettings`: every setting of a keeper, under ZooKeeper's names, checked when it is made.

`zoo_cfg` reads them from ZooKeeper's own file.
"""

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Final

from headrace.core.errors import OperatorError

WORDS: Final = (
    "conf", "cons", "crst", "dirs", "dump", "envi", "isro", "mntr",
    "ruok", "srst", "srvr", "stat", "wchc", "wchp", "wchs",
)  # fmt: skip
WORDS_NOT_ANSWERED: Final = frozenset(("gtmk", "hash", "stmk"))  # that ZooKeeper has, and a list may name
SNAPSHOTS_KEPT_MIN: Final = 3  # as in ZooKeeper
_INT_MAX: Final = (1 << 31) - 1


def _setting(default: Any, key: str, help: str, low: int = 0, high: int = _INT_MAX) -> Any:
    return field(default=default, metadata={"key": key, "help": help, "low": low, "high": high})


@dataclass(frozen=True, kw_only=True, slots=True)
class KeeperSettings:
    data_dir: str = _setting("./keeper-data", "dataDir", "Directory of the snapshots, and of the transaction logs.")
    data_log_dir: str = _setting("", "dataLogDir", "Directory of the transaction logs, if it is another one.")
    host: str = _setting("127.0.0.1", "clientPortAddress", "Address to listen on.")
    port: int = _setting(2181, "clientPort", "Port to listen on; 0 picks a free one.", high=65535)
    tick_ms: int = _setting(3000, "tickTime", "Unit of the session time-outs' bounds, in milliseconds.", low=1)
    timeout_ms_min: int = _setting(-1, "minSessionTimeout", "Shortest session time-out; -1: two ticks.", low=-1)
    timeout_ms_max: int = _setting(-1, "maxSessionTimeout", "Longest session time-out; -1: twenty ticks.", low=-1)
    connections_per_address_max: int = _setting(60, "maxClientCnxns", "Connections per client address; 0: no limit.")
    connections_max: int = _setting(0, "maxCnxns", "Connections in all; 0: what the descriptors allow.")
    request_bytes_max: int = _setting(0xFFFFF, "jute.maxbuffer", "Size of the largest request.", low=1024)
    words: str = _setting("srvr", "4lw.commands.whitelist", "Four-letter words that are answered; *: all.")
    snapshot_count: int = _setting(100_000, "snapCount", "Transactions between two snapshots.", low=2)
    snapshots_kept: int = _setting(
        SNAPSHOTS_KEPT_MIN,
        "autopurge.snapRetainCount",
        "Snapshots kept; older ones go when a new one is there.",
        low=SNAPSHOTS_KEPT_MIN,
    )
    quota_enforced: bool = _setting(
        True, "enforceQuota", "Refuse what goes beyond a hard limit of a quota, log what goes beyond a soft one."
    )
    reconfig_enabled: bool = _setting(
        False,
        "reconfigEnabled",
        "Answer reconfig with Unimplemented, not with ReconfigDisabled: a keeper is no ensemble.",
    )
    super_digest: str = _setting(
        "", "DigestAuthenticationProvider.superDigest", "Digest of the user who may do everything."
    )
    metrics_host: str = _setting("127.0.0.1", "metricsProvider.httpHost", "Address of the port for metrics.")
    metrics_port: int = _setting(
        -1,
        "metricsProvider.httpPort",
        "Port of /metrics and /health; 0 picks a free one, -1: none.",
        low=-1,
        high=65535,
    )
    clear_ms: int = _setting(
        60_000, "znode.container.checkIntervalMs", "How often containers and times to live are looked at.", low=1
    )
    never_used_ms: int = _setting(
        0, "znode.container.maxNeverUsedIntervalMs",
        "A container that never had children goes after this long; 0: never.",
    )  # fmt: skip
    watches_per_connection_max: int = _setting(
        100_000, "headrace.watches.per.connection.max", "Watches of one connection.", low=1
    )
    sessions_max: int = _setting(
        100_000,
        "headrace.sessions.max",
        "Sessions in all; beyond it none is opened.",
        low=1,
    )
    tree_bytes_max: int = _setting(
        1 << 33, "headrace.tree.bytes.max", "Memory of the tree; above it nothing is added.", low=1 << 20, high=1 << 50
    )

    def __post_init__(self) -> None:
        for each in dataclasses.fields(self):
            value = getattr(self, each.name)
            low, high = each.metadata["low"], each.metadata["high"]
            if isinstance(value, int) and not low <= value <= high:
                raise OperatorError(f"{each.metadata['key']}={value} is outside [{low}, {high}]")
        if self.session_ms_min > self.session_ms_max:
            raise OperatorError(
                f"minSessionTimeout={self.session_ms_min} is above"
                f" maxSessionTimeout={self.session_ms_max}; raise the latter"
            )
        unknown = self.allowed_words - {*WORDS, *WORDS_NOT_ANSWERED}
        if unknown:
            raise OperatorError(
                f"4lw.commands.whitelist={self.words}: {sorted(unknown)[0]} is no four-letter word; these are:"
                f" {', '.join(WORDS)}, or * for all"
            )

    @property
    def session_ms_min(self) -> int:
        return self.timeout_ms_min if self.timeout_ms_min >= 0 else 2 * self.tick_ms

    @property
    def session_ms_max(self) -> int:
        return self.timeout_ms_max if self.timeout_ms_max >= 0 else 20 * self.tick_ms

    @property
    def allowed_words(self) -> frozenset[str]:
        named = {word.strip() for word in self.words.split(",")} - {""}
        return frozenset(WORDS if "*" in named else named)
