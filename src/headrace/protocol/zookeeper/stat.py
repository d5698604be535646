"""The stat structure of a node, as answers hold it."""

import struct
from typing import Final, NamedTuple

from headrace.protocol.zookeeper.jute import Reader

STAT: Final = struct.Struct(">qqqqiiiqiiq")


class Stat(NamedTuple):
    created_zxid: int
    modified_zxid: int
    created_ms: int
    modified_ms: int
    version: int
    children_version: int
    acl_version: int
    owner: int  # the session of an ephemeral node, else 0
    data_bytes: int
    children: int
    children_zxid: int


def read_stat(reader: Reader) -> Stat:
    return Stat._make(STAT.unpack(reader.raw(STAT.size)))
