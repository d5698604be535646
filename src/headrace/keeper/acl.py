"""Who may do what to a node: ZooKeeper's schemes world, auth, digest, ip and super.

No IO. An identity is a scheme and an id; a connection has several: its address, and what it has shown by addauth.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from headrace.protocol.zookeeper.acl import OPEN, Acl, Identity, digest
from headrace.protocol.zookeeper.codes import INVALID_ACL, NO_AUTH, RefusedError

if TYPE_CHECKING:
    import ipaddress


def identities(scheme: str, credentials: bytes, address: str, super_digest: str) -> list[Identity] | None:
    """What a client that shows these credentials is; None if they are not accepted."""
    if scheme == "digest":
        shown = digest(credentials)
        found = [Identity("super", "")] if super_digest and shown == super_digest else []
        return [*found, Identity("digest", shown)]
    if scheme == "ip":
        return [Identity("ip", address)]
    return None


def fixed(acl: Sequence[Acl], who: Iterable[Identity], path: str) -> tuple[Acl, ...]:
    """The list as it is stored: `auth` becomes the client's own identities, repeated entries go."""
    if acl is OPEN:
        return OPEN
    if not acl:
        raise RefusedError(INVALID_ACL, path)
    stored: dict[Acl, None] = {}
    for entry in acl:
        if entry.scheme == "auth":
            own = [Acl(entry.permissions, each.scheme, each.id) for each in who if each.scheme == "digest"]
            if not own:
                raise RefusedError(INVALID_ACL, path)
            stored.update(dict.fromkeys(own))
        elif _valid(entry):
            stored[entry] = None
        else:
            raise RefusedError(INVALID_ACL, path)
    return tuple(stored)


def _valid(entry: Acl) -> bool:
    if entry.scheme == "world":
        return entry.id == "anyone"
    if entry.scheme == "digest":
        return entry.id.count(":") == 1
    if entry.scheme == "ip":
        return _network(entry.id) is not None
    return False


def _network(text: str) -> "ipaddress.IPv4Network | ipaddress.IPv6Network | None":
    import ipaddress  # a megabyte, for lists that few have

    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None


def _is_in(address: str, network: "ipaddress.IPv4Network | ipaddress.IPv6Network") -> bool:
    import ipaddress

    return ipaddress.ip_address(address) in network


def allows(acl: Sequence[Acl], permission: int, who: Sequence[Identity]) -> bool:
    if acl is OPEN or not acl:
        return True
    for each in who:
        if each.scheme == "super":
            return True
    return any(entry.permissions & permission and _matches(entry, who) for entry in acl)


def _matches(entry: Acl, who: Sequence[Identity]) -> bool:
    if entry.scheme == "world":
        return entry.id == "anyone"
    for each in who:
        if each.scheme != entry.scheme:
            continue
        if entry.scheme != "ip":
            if each.id == entry.id:
                return True
            continue
        network = _network(entry.id)
        if network is not None and _is_in(each.id, network):
            return True
    return False


def demand(acl: Sequence[Acl], permission: int, who: Sequence[Identity], path: str) -> None:
    if not allows(acl, permission, who):
        raise RefusedError(NO_AUTH, path)


def masked(acl: Iterable[Acl]) -> list[Acl]:
    """What a client without the permission ADMIN is shown: no password's digest."""
    return [
        Acl(each.permissions, each.scheme, each.id.partition(":")[0] + ":x") if each.scheme == "digest" else each
        for each in acl
    ]
