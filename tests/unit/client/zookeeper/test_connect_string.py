"""Addresses as people write them."""

import pytest

from headrace.client.errors import AddressError
from headrace.client.zookeeper.connect_string import ConnectString, parse_connect_string


@pytest.mark.parametrize(
    ("text", "servers", "chroot"),
    [
        ("localhost", (("localhost", 2181),), ""),
        ("a:1, b:2 ,c", (("a", 1), ("b", 2), ("c", 2181)), ""),
        ("a:1,b:2/kafka/one", (("a", 1), ("b", 2)), "/kafka/one"),
        ("a:1/", (("a", 1),), ""),
        ("[::1]:2182,[fe80::1]", (("::1", 2182), ("fe80::1", 2181)), ""),
        ("a:", (("a", 2181),), ""),
    ],
)
def test_a_connect_string_names_servers_and_a_chroot(
    text: str, servers: tuple[tuple[str, int], ...], chroot: str
) -> None:
    assert parse_connect_string(text) == ConnectString(servers, chroot)


@pytest.mark.parametrize(
    "text", ["", "/kafka", "a:port", "a:0", "a:65536", "a:1/kafka/", "a:1//x", ":2181", "a:1/../b"]
)
def test_a_wrong_connect_string_says_what_is_wrong_with_it(text: str) -> None:
    with pytest.raises(AddressError, match=r"write host:port|names no server|is not host:port"):
        parse_connect_string(text)


def test_a_connect_string_is_named_as_it_is_written() -> None:
    assert parse_connect_string("[::1]:1,b:2/x").named == "[::1]:1,b:2/x"
