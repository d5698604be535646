"""What classic consumers say of themselves: read in a few pieces, however long it is, and never beyond its end."""

import struct

import pytest
from calls import calls_of

from headrace.protocol.consumer_protocol import read_assignment, read_subscription

COUNT = 100_000
ORDERS = b"\x00\x06orders"


def counted(count, *parts):
    return struct.pack(">i", count) + b"".join(parts)


def numbers(count):
    return counted(count, struct.pack(f">{count}i", *range(count)))


def subscription(user_data=b"", owned=b""):
    begin = struct.pack(">h", 1) + counted(1, ORDERS)
    return begin + counted(len(user_data), user_data) + (counted(1, ORDERS, owned) if owned else counted(0))


def test_a_subscription_is_read():
    found = read_subscription(subscription(b"mine", numbers(3)))
    assert (found.version, found.topics, found.owned) == (1, ("orders",), (("orders", (0, 1, 2)),))
    assignment = struct.pack(">h", 1) + counted(1, ORDERS, numbers(2)) + counted(4, b"mine")
    assert read_assignment(assignment) == ((("orders", (0, 1)),), b"mine")
    without = struct.pack(">h", 1) + counted(0) + counted(-1)
    assert read_assignment(without) == ((), b"")


@pytest.mark.parametrize("said", [subscription(bytes(COUNT)), subscription(owned=numbers(COUNT))])
def test_a_long_subscription_is_read_in_a_few_pieces(said):
    assert calls_of(lambda: read_subscription(said)) < 1_000


@pytest.mark.parametrize("cut", range(1, len(subscription(b"mine", numbers(3)))))
def test_a_subscription_that_is_cut_short_is_refused(cut):
    with pytest.raises(ValueError, match="cannot be read"):
        read_subscription(subscription(b"mine", numbers(3))[:cut])


@pytest.mark.parametrize("count", [-1, -(1 << 31), 1 << 20, (1 << 31) - 1])
def test_a_subscription_that_claims_what_it_does_not_hold_is_refused(count):
    with pytest.raises(ValueError, match="cannot be read"):
        read_subscription(subscription(owned=counted(count)))
