"""OffsetCommit read by hand, against kio's reader, over every version that is served."""

import contextlib
import dataclasses
import io
import random
import uuid
from datetime import timedelta

import pytest
from kio.index import load_request_schema
from kio.serial import entity_reader, entity_writer

from headrace.protocol import messages, offset_commit
from headrace.protocol.offset_commit import KNOWN_MAX, OffsetCommitDecoder

VERSIONS = range(offset_commit.LOW, offset_commit.HIGH + 1)
SEED = 20260101
NO_ID = uuid.UUID(int=0)


def text(rng):
    return "".join(rng.choice("abc.ä日") for _ in range(rng.choice([0, 1, 9, 130])))


def fields_of(schema):
    return schema.__dataclass_fields__


def made(schema, values):
    """Of all values, those that this version has."""
    return schema(**{name: value for name, value in values.items() if name in fields_of(schema)})


def entity(rng, version, *, partitions=None, metadata=None):
    schema = load_request_schema(offset_commit.KEY, version)
    topic_schema = fields_of(schema)["topics"].type.__args__[0]
    partition_schema = fields_of(topic_schema)["partitions"].type.__args__[0]

    def partition():
        return made(
            partition_schema,
            {
                "partition_index": rng.randrange(-(1 << 31), 1 << 31),
                "committed_offset": rng.randrange(-(1 << 63), 1 << 63),
                "committed_leader_epoch": rng.randrange(-1, 1 << 31),
                "committed_metadata": rng.choice([None, "", text(rng)]) if metadata is None else metadata,
            },
        )

    def topic():
        count = rng.choice([0, 1, 2, 200]) if partitions is None else partitions
        named = {"name": text(rng), "topic_id": uuid.UUID(int=rng.getrandbits(128))}
        return made(topic_schema, {**named, "partitions": tuple(partition() for _ in range(count))})

    count = rng.choice([0, 1, 1, 3]) if partitions is None else 1
    values = {
        "group_id": text(rng),
        "generation_id_or_member_epoch": rng.randrange(-1, 1 << 31),
        "member_id": text(rng),
        "group_instance_id": rng.choice([None, text(rng)]),
        "topics": tuple(topic() for _ in range(count)),
        "retention_time": timedelta(milliseconds=rng.randrange(1 << 31)),
    }
    return made(schema, values)


def encoded(request):
    with io.BytesIO() as out:
        entity_writer(type(request))(out, request)
        return out.getvalue()


def expected(request):
    """What kio read, as the hand-made reader gives it."""
    lifetime = getattr(request, "retention_time", None)
    return (
        request.group_id,
        request.generation_id_or_member_epoch,
        request.member_id,
        getattr(request, "group_instance_id", None),
        -1 if lifetime is None else round(lifetime.total_seconds() * 1000),
        [
            (
                topic.name if hasattr(topic, "name") else (topic.topic_id or NO_ID).bytes,
                [
                    (
                        each.partition_index,
                        each.committed_offset,
                        getattr(each, "committed_leader_epoch", -1),
                        each.committed_metadata or "",
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def decoded_by_kio(version, data):
    return entity_reader(load_request_schema(offset_commit.KEY, version))(data, 0)[0]


@pytest.mark.parametrize("version", VERSIONS)
def test_it_reads_what_kio_reads(version):
    rng, decoder = random.Random(SEED + version), OffsetCommitDecoder()
    for _ in range(20):
        data = encoded(entity(rng, version))
        wanted = expected(decoded_by_kio(version, data))
        assert decoder.decode(b"##" + data, 2, version) == wanted
        assert decoder.decode(b"##" + data, 2, version) == wanted, "the second time it may be remembered"
        assert decoder.decode(data + b"behind it", 0, version) == wanted


@pytest.mark.parametrize("version", [8, 9, 10])
def test_what_is_remembered_is_read_as_if_it_were_not(version):
    """Requests that begin alike and end otherwise: other offsets, another metadata, another version."""
    rng, decoder = random.Random(SEED), OffsetCommitDecoder()
    first = encoded(entity(rng, version, partitions=1, metadata=""))
    decoder.decode(first, 0, version)
    for _ in range(200):
        ending = rng.randbytes(16) + rng.choice([b"\x01\0\0\0", b"\0\0\0\0", b"\x02x\0\0\0", b"\x01\0\0\1\0\0"])
        data = first[:-20] + ending
        wanted = expected(messages.decode_request(offset_commit.KEY, version, data, 0))  # kio knows no tag but its own
        assert decoder.decode(data, 0, version) == wanted
        assert OffsetCommitDecoder().decode(data, 0, version) == wanted


def test_a_beginning_is_remembered_for_its_own_version_only():
    rng, decoder = random.Random(SEED), OffsetCommitDecoder()
    data = encoded(entity(rng, 9, partitions=1, metadata=""))
    assert decoder.decode(data, 0, 9) == decoder.decode(data, 0, 9)
    try:
        wanted = expected(decoded_by_kio(10, data))
    except Exception:
        with pytest.raises(ValueError):  # noqa: PT011 - whichever it is
            decoder.decode(data, 0, 10)
    else:
        assert decoder.decode(data, 0, 10) == wanted


def test_what_is_remembered_is_bounded():
    rng, decoder = random.Random(SEED), OffsetCommitDecoder()
    template = entity(rng, 9, partitions=1, metadata="")
    for number in range(KNOWN_MAX + 10):
        decoder.decode(encoded(dataclasses.replace(template, group_id=f"g{number}")), 0, 9)
    assert 0 < len(decoder._known) <= KNOWN_MAX


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_cut_anywhere_is_a_value_error(version):
    rng, decoder = random.Random(SEED), OffsetCommitDecoder()
    for partitions in (1, 2):
        data = encoded(entity(rng, version, partitions=partitions))
        for cut in range(len(data)):
            with pytest.raises(ValueError):  # noqa: PT011 - any, whichever field was cut
                decoder.decode(data[:cut], 0, version)


@pytest.mark.parametrize("version", VERSIONS)
def test_garbage_is_a_value_error_or_a_request_but_nothing_else(version):
    rng, decoder = random.Random(SEED + version), OffsetCommitDecoder()
    good = encoded(entity(rng, version, partitions=1))
    for _ in range(2000):
        data = bytearray(rng.choice([good, rng.randbytes(rng.randrange(60))]))
        for _ in range(rng.randrange(3)):
            if data:
                data[rng.randrange(len(data))] = rng.randrange(256)
        with contextlib.suppress(ValueError):
            decoder.decode(bytes(data), 0, version)


@pytest.mark.parametrize("version", VERSIONS)
def test_all_partitions_of_a_request_together_are_bounded(version, monkeypatch):
    one = entity(random.Random(SEED), version, partitions=3)
    data = encoded(dataclasses.replace(one, topics=one.topics * 2))
    monkeypatch.setattr(offset_commit, "NAMED_MAX", 6)
    assert len(OffsetCommitDecoder().decode(data, 0, version)[5]) == 2
    monkeypatch.setattr(offset_commit, "NAMED_MAX", 5)
    with pytest.raises(ValueError, match="names 6 topics or partitions; at most"):
        OffsetCommitDecoder().decode(data, 0, version)
