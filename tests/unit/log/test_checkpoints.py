import contextlib
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import OperatorError
from headrace.log.checkpoints import (
    MetaProperties,
    decode_meta_properties,
    decode_offsets,
    decode_partition_metadata,
    encode_meta_properties,
    encode_offsets,
    encode_partition_metadata,
    uuid_from_text,
    uuid_text,
)

# Files that Apache Kafka 4.3.1 wrote.
KAFKA_OFFSETS = "0\n2\ncodecs 0 100\nsnap 0 55\n"
KAFKA_PARTITION = "version: 0\ntopic_id: iaJGBGZLTQGB2REfSXQsiQ"
KAFKA_META = (
    "#\n#Mon Nov 16 03:57:44 UTC 2026\nnode.id=1\ndirectory.id=c8A2PHRMC3XZ-2aoRPsDHg\nversion=1\n"
    "cluster.id=AAAAAAAAAAAAAAAAAAAAAQ\n"
)


def test_kafkas_offset_checkpoint_is_read_and_written_alike() -> None:
    offsets = decode_offsets(KAFKA_OFFSETS, "f")
    assert offsets == {("codecs", 0): 100, ("snap", 0): 55}
    assert encode_offsets(offsets) == KAFKA_OFFSETS


def test_an_empty_checkpoint_has_no_entries() -> None:
    assert decode_offsets("", "f") == {}  # as Kafka leaves it before its first write
    assert decode_offsets("0\n0\n", "f") == {}
    assert encode_offsets({}) == "0\n0\n"


topics = st.text("abcXYZ019._-", min_size=1, max_size=20)


@given(st.dictionaries(st.tuples(topics, st.integers(0, 10_000)), st.integers(0, (1 << 63) - 1)))
def test_offsets_survive_the_round_trip(offsets: dict[tuple[str, int], int]) -> None:
    assert decode_offsets(encode_offsets(offsets), "f") == offsets


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("1\n0\n", 1),
        ("x\n0\n", 1),
        ("0\n", 2),
        ("0\nmany\n", 2),
        ("0\n2\na 0 1\n", 2),
        ("0\n1\na 0 1\nb 0 1\n", 2),
        ("0\n1\na 0\n", 3),
        ("0\n2\na 0 1\na b 0 1\n", 4),
        ("0\n1\na zero 1\n", 3),
        ("0\n1\na 0 -1\n", 3),
        ("0\n1\n\n", 3),
    ],
)
def test_a_malformed_checkpoint_names_file_line_and_remedy(text: str, line: int) -> None:
    path = "/data/recovery-point-offset-checkpoint"
    with pytest.raises(OperatorError, match=rf"^{path}, line {line}: .* is not .*; delete it: "):
        decode_offsets(text, path)


def test_kafkas_partition_metadata_is_read_and_written_alike() -> None:
    topic_id = decode_partition_metadata(KAFKA_PARTITION, "f")
    assert encode_partition_metadata(topic_id) == KAFKA_PARTITION
    assert decode_partition_metadata(KAFKA_PARTITION + "\n", "f") == topic_id


@pytest.mark.parametrize(
    "text",
    [
        "",
        "version: 1\ntopic_id: iaJGBGZLTQGB2REfSXQsiQ",
        "version: 0",
        "version 0\ntopic_id: iaJGBGZLTQGB2REfSXQsiQ",
        "version: 0\ntopic_id: short",
        "version: 0\ntopic_id: iaJGBGZLTQGB2REfSXQs!Q",
    ],
)
def test_malformed_partition_metadata_names_file_line_and_remedy(text: str) -> None:
    with pytest.raises(OperatorError, match=r"^t-0/partition.metadata, line \d: .*; write the topic's id"):
        decode_partition_metadata(text, "t-0/partition.metadata")


def test_kafkas_meta_properties_are_read() -> None:
    assert decode_meta_properties(KAFKA_META, "f") == MetaProperties(
        cluster_id="AAAAAAAAAAAAAAAAAAAAAQ", node_id=1, directory_id=uuid_from_text("c8A2PHRMC3XZ-2aoRPsDHg")
    )


def test_meta_properties_of_version_0_call_the_node_a_broker() -> None:
    found = decode_meta_properties("version=0\nbroker.id=3\ncluster.id=abc\\=\n", "f")
    assert found == MetaProperties(cluster_id="abc=", node_id=3)


@given(st.integers(0, (1 << 31) - 1), st.none() | st.uuids())
def test_meta_properties_survive_the_round_trip(node_id: int, directory_id: UUID | None) -> None:
    properties = MetaProperties(cluster_id="4L6g3nShT-eMCtK--X86sw", node_id=node_id, directory_id=directory_id)
    assert decode_meta_properties(encode_meta_properties(properties), "f") == properties


@pytest.mark.parametrize(
    "text",
    [
        "",
        "version=2\ncluster.id=a\nnode.id=1\n",
        "version=1\nnode.id=1\n",
        "version=1\ncluster.id=a\n",
        "version=1\ncluster.id=a\nnode.id=one\n",
        "version=1\ncluster.id=a\nnode.id=1\ndirectory.id=x\n",
        "version=1\nnonsense\n",
    ],
)
def test_malformed_meta_properties_name_file_line_and_remedy(text: str) -> None:
    with pytest.raises(OperatorError, match=r"^d/meta.properties, line \d: .*; restore it from a backup"):
        decode_meta_properties(text, "d/meta.properties")


@given(st.uuids())
def test_an_id_survives_as_22_characters(value: UUID) -> None:
    assert len(uuid_text(value)) == 22
    assert uuid_from_text(uuid_text(value)) == value


@given(st.text(max_size=24))
def test_text_that_is_no_id_is_a_value_error(text: str) -> None:
    with contextlib.suppress(ValueError):
        assert uuid_text(uuid_from_text(text)) == text
