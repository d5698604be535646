"""A `zoo.cfg`, ZooKeeper's own file, a Java properties file: the settings in it, and what to warn of.

A key that is not known is a warning with the nearest known name; so is one that asks for what a keeper does not have.
One that asks for an ensemble is refused with what to do, since one keeper cannot be one.
"""

import dataclasses
from typing import Any, Final

from headrace.core.errors import OperatorError
from headrace.core.properties import Property, parse_properties
from headrace.keeper.settings import SNAPSHOTS_KEPT_MIN, KeeperSettings

# Known to ZooKeeper, and nothing to do on one node without TLS, or done anyway.
_WITHOUT_EFFECT: Final = frozenset(
    ("initLimit", "syncLimit", "syncEnabled", "standaloneEnabled", "admin.enableServer", "admin.serverPort",
     "admin.serverAddress", "admin.commandURL", "admin.idleTimeout", "forceSync", "preAllocSize", "snapSizeLimitInKb",
     "txnLogSizeLimitInKb", "clientPortListenBacklog", "electionAlg", "electionPort", "leaderServes",
     "fsync.warningthresholdms", "peerType", "cnxTimeout", "autopurge.purgeInterval", "commitLogCount",
     "globalOutstandingLimit", "maxResponseCacheSize", "maxGetChildrenResponseCacheSize", "watchManagerName",
     "serverCnxnFactory", "flushDelay", "maxBatchSize", "digest.enabled", "snapshot.trust.empty", "tcpKeepAlive",
     "clientTcpKeepAlive", "quorumListenOnAllIPs", "localSessionsEnabled", "znode.container.maxPerMinute",
     "metricsProvider.className", "metricsProvider.exportJvmInfo", "extendedTypesEnabled", "emulate353TTLNodes",
     "jute.maxbuffer.extrasize")
)  # fmt: skip
_NO_TLS: Final = "a keeper has no TLS; clients use clientPort"
_NO_SASL: Final = "a keeper has no SASL, and asks nobody who they are; ACLs with digest and ip are checked"
# Keys, or how they begin, that ask for what is not there.
_MISSING: Final = {
    "secureClientPort": _NO_TLS,
    "ssl.": _NO_TLS,
    "sslQuorum": _NO_TLS,
    "client.portUnification": _NO_TLS,
    "client.certReload": _NO_TLS,
    "authProvider": _NO_SASL,
    "requireClientAuthScheme": _NO_SASL,
    "sessionRequireClientSASLAuth": _NO_SASL,
    "enforce.auth.": _NO_SASL,
    "kerberos.": _NO_SASL,
    "jaasLoginRenew": _NO_SASL,
    "skipACL": "a keeper always checks ACLs; DigestAuthenticationProvider.superDigest names who may do everything",
    "audit.enable": "a keeper writes no audit log",
    "connectionMaxTokens": "a keeper does not throttle connections by tokens; maxCnxns and maxClientCnxns bound them",
}


def read_properties(text: str, source: str) -> tuple[dict[str, Any], list[str]]:
    """The values of a `zoo.cfg` by the names of the fields, and what to warn of."""
    fields = {each.metadata["key"]: each for each in dataclasses.fields(KeeperSettings)}
    values: dict[str, Any] = {}
    warnings: list[str] = []
    servers: list[Property] = []
    for entry in parse_properties(text, source):
        key = entry.key.removeprefix("zookeeper.")
        where = f"{source}:{entry.line}"
        if key.startswith("server."):
            servers.append(entry)
        elif key.startswith("group.") or key == "dynamicConfigFile":
            raise _ensemble(where, entry.key)
        elif key in fields:
            values[fields[key].name] = _value(fields[key], entry.value, where)
        elif key not in _WITHOUT_EFFECT:
            warnings.append(f"{where}: {_of_no_use(key, entry.key, [*fields, *_WITHOUT_EFFECT])}")
    if len(servers) == 1:  # as ZooKeeper, which then runs alone, too
        warnings.append(f"{source}:{servers[0].line}: {servers[0].key} is not used, since a keeper is one node")
    elif servers:
        raise _ensemble(f"{source}:{servers[0].line}", servers[0].key)
    kept = values.get("snapshots_kept", SNAPSHOTS_KEPT_MIN)
    if kept < SNAPSHOTS_KEPT_MIN:  # as in ZooKeeper
        warnings.append(f"{source}: autopurge.snapRetainCount={kept} is below {SNAPSHOTS_KEPT_MIN}, which is used")
        values["snapshots_kept"] = SNAPSHOTS_KEPT_MIN
    return values, warnings


def _ensemble(where: str, key: str) -> OperatorError:
    return OperatorError(
        f"{where}: {key} asks for an ensemble, and a keeper is one node; run Apache ZooKeeper with this file, and set"
        " zookeeper.connect to its addresses"
    )


def _of_no_use(key: str, written: str, known: list[str]) -> str:
    for name, why in _MISSING.items():
        if key.startswith(name):
            return f"{written} has no effect: {why}"
    import difflib  # for this alone

    near = difflib.get_close_matches(key, known, n=1)
    return f"{written} is not a setting of a keeper{f'; did you mean {near[0]}?' if near else ''}"


def _value(each: "dataclasses.Field[Any]", text: str, where: str) -> Any:
    text = text.strip()
    key = each.metadata["key"]
    if isinstance(each.default, bool):
        if text.lower() not in ("true", "false"):
            raise OperatorError(f"{where}: {key}={text} is neither true nor false")
        return text.lower() == "true"
    if not isinstance(each.default, int):
        return text
    try:
        return int(text, 0)
    except ValueError:
        raise OperatorError(f"{where}: {key}={text} is not a whole number") from None
