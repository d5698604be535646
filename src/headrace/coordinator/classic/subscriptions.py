"""Which topics a classic consumer asks for: the first part of its metadata, which is the same in every version."""

import struct

_INT16, _INT32 = struct.Struct(">h"), struct.Struct(">i")


def topics_of(metadata: bytes) -> list[str]:
    """ValueError if it is not a consumer's metadata: other programs may put there what they like."""
    try:
        (count,) = _INT32.unpack_from(metadata, 2)
        at = 6
        if not 0 <= count <= len(metadata):
            raise ValueError(f"a subscription of {len(metadata)} bytes cannot hold {count} topics")
        topics = []
        for _ in range(count):
            (size,) = _INT16.unpack_from(metadata, at)
            at += 2
            if size < 0 or at + size > len(metadata):
                raise ValueError(f"a topic's name at byte {at} reaches beyond the subscription")
            topics.append(str(metadata[at : at + size], "utf-8"))
            at += size
    except struct.error as error:
        raise ValueError(f"a subscription of {len(metadata)} bytes is cut short") from error
    return topics
