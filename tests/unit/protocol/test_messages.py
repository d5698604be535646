"""Our readers and writers against kio's own, over every API and version that kio knows."""

import contextlib
import dataclasses
import io
import random
import struct
import subprocess
import sys
import uuid
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader, entity_writer

from headrace.core.errors import AnswerError
from headrace.protocol import error_codes, messages
from headrace.protocol.message_fields import schema_fields
from headrace.protocol.message_reader import compile_reader
from headrace.protocol.message_writer import compile_writer

SEED = 20260101

NUMBERS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}


def random_value(rng, field, depth):
    if field.array:
        if field.nullable and rng.random() < 0.2:
            return None
        count = rng.choice([0, 1, 2, 3]) if depth < 3 else rng.choice([0, 1])
        return tuple(random_item(rng, field, depth) for _ in range(count))
    if field.nullable and field.kafka_type not in ("uuid",) and rng.random() < 0.3:
        return None
    if field.tag is not None and field.default is None and rng.random() < 0.3:
        return None
    return random_item(rng, field, depth)


def random_item(rng, field, depth):
    match field.kafka_type:
        case "entity":
            return random_entity(rng, field.python_type, depth + 1)
        case "string":
            return "".join(rng.choice("abc.ä日") for _ in range(rng.choice([0, 1, 9, 130])))
        case "bytes" | "records":
            return rng.randbytes(rng.choice([0, 1, 200]))
        case "uuid":
            return rng.choice([None, uuid.UUID(int=rng.getrandbits(128))]) if field.nullable else uuid.uuid4()
        case "bool":
            return rng.random() < 0.5
        case "float64":
            return rng.random()
        case "error_code":
            return rng.choice(list(ErrorCode))
        case "timedelta_i32" | "timedelta_i64":
            return timedelta(milliseconds=rng.randrange(0, 1 << 31))
        case "datetime_i64":
            return datetime.fromtimestamp(rng.randrange(1 << 31), UTC)
        case "uint16":
            return rng.randrange(1 << 16)
        case kafka_type:
            bits = NUMBERS[kafka_type]
            return rng.choice([0, -1, rng.randrange(-(1 << bits), 1 << bits)])


def random_entity(rng, schema, depth=0):
    return schema(**{f.name: random_value(rng, f, depth) for f in schema_fields(schema)})


def as_mapping(entity):
    return {f.name: plain(getattr(entity, f.name)) for f in dataclasses.fields(entity)}


def plain(value):
    if dataclasses.is_dataclass(value):
        return as_mapping(value)
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    if isinstance(value, timedelta):
        return value // timedelta(milliseconds=1)
    return value


def attributes(value):
    """What kio read, as ours reads it: the same names and values, without kio's classes."""
    if dataclasses.is_dataclass(value):
        return SimpleNamespace(**{f.name: attributes(getattr(value, f.name)) for f in dataclasses.fields(value)})
    return tuple(map(attributes, value)) if isinstance(value, tuple) else value


def kio_bytes(entity):
    with io.BytesIO() as out:
        entity_writer(type(entity))(out, entity)
        return out.getvalue()


@pytest.mark.parametrize("api_key", sorted(api_key_map), ids=lambda key: api_key_map[key])
def test_every_request_and_response_reads_and_writes_like_kio(api_key):
    rng = random.Random(SEED + api_key)
    for version in schema_name_map[api_key_map[api_key]]:
        for load in (load_request_schema, load_response_schema):
            schema = load(api_key, version)
            read, write = compile_reader(schema).read, compile_writer(schema).write
            for _ in range(2):
                entity = random_entity(rng, schema)
                expected = kio_bytes(entity)
                out = bytearray()
                write(out, as_mapping(entity))
                assert bytes(out) == expected, (schema, entity)
                assert read(b"##" + expected, 2) == (
                    attributes(entity_reader(schema)(expected, 0)[0]),
                    len(expected) + 2,
                )


@pytest.mark.parametrize(("api_key", "version"), [(3, 1), (3, 13), (19, 2), (19, 7), (44, 1), (75, 0), (11, 9)])
def test_a_request_cut_anywhere_is_a_value_error(api_key, version):
    rng = random.Random(SEED)
    schema = load_request_schema(api_key, version)
    for _ in range(5):
        data = kio_bytes(random_entity(rng, schema))
        for cut in range(len(data)):
            with pytest.raises(ValueError):  # noqa: PT011 - any ValueError, whichever field was cut
                messages.decode_request(api_key, version, data[:cut], 0)


@pytest.mark.parametrize("seed", range(4))
def test_garbage_is_a_value_error_or_a_request_but_nothing_else(seed):
    rng = random.Random(seed)
    for api_key, name in api_key_map.items():
        for version in schema_name_map[name]:
            with contextlib.suppress(ValueError):
                messages.decode_request(api_key, version, rng.randbytes(rng.randrange(40)), 0)


@pytest.mark.parametrize(
    ("version", "data"),
    [(1, struct.pack(">i", 0x7FFFFFFF)), (12, b"\xff\xff\xff\xff\x07"), (12, b"\xff" * 9)],
)
def test_an_array_that_claims_more_than_the_frame_holds_is_refused_before_memory_is_reserved(version, data):
    with pytest.raises(ValueError, match=r"claims 214748364|longer than 5 bytes"):
        messages.decode_request(3, version, data, 0)


def test_null_where_a_list_must_stand_is_refused():
    with pytest.raises(ValueError, match="topics is null"):
        messages.decode_request(19, 2, struct.pack(">iib", -1, 5, 0), 0)


def test_bytes_that_are_not_utf8_are_refused():
    with pytest.raises(ValueError, match="utf-8"):
        messages.decode_request(3, 1, struct.pack(">ih", 1, 2) + b"\xff\xfe", 0)


def test_bytes_behind_the_request_are_ignored_and_a_memoryview_will_do():
    data = b"--" + struct.pack(">ih", 1, 3) + b"abc" + b"more"
    assert messages.decode_request(3, 1, memoryview(data), 2).topics[0].name == "abc"


def test_a_response_begins_with_the_correlation_id_and_the_tags_of_a_flexible_header():
    assert messages.encode_response(22, 0, 7, {"error_code": 0, "producer_id": 1, "producer_epoch": 0}) == (
        struct.pack(">iihqh", 7, 0, 0, 1, 0)
    )
    flexible = messages.encode_response(22, 2, 7, {"error_code": 0, "producer_id": 1, "producer_epoch": 0})
    assert flexible == struct.pack(">ibihqhb", 7, 0, 0, 0, 1, 0, 0)


def test_api_versions_never_has_a_flexible_header():
    answer = messages.encode_response(18, 3, 7, {"error_code": 0, "api_keys": []})
    assert answer == struct.pack(">ihbib", 7, 0, 1, 0, 0)


def test_a_body_that_was_encoded_before_gives_the_same_response():
    body = {"error_code": 0, "producer_id": 1, "producer_epoch": 0}
    encoded = messages.encode_body(22, 4, body)
    assert messages.encode_response(22, 4, 9, encoded) == messages.encode_response(22, 4, 9, body)


def test_fields_that_the_version_lacks_are_dropped():
    body = {"error_code": 0, "producer_id": 1, "producer_epoch": 0}
    assert messages.encode_response(22, 0, 1, {**body, "not_of_this_version": 5}) == (
        messages.encode_response(22, 0, 1, body)
    )


def test_a_field_without_default_that_is_not_given_is_our_bug():
    with pytest.raises(AnswerError, match="producer_epoch"):
        messages.encode_response(22, 0, 1, {"error_code": 0, "producer_id": 1})


def test_flexible_requests_are_known_as_such():
    assert not messages.request_is_flexible(18, 2)
    assert messages.request_is_flexible(18, 3)


def test_error_codes_equal_kio():
    ours = {name: value for name, value in vars(error_codes).items() if name.isupper()}
    assert ours == {code.name.upper(): int(code) for code in ErrorCode}


def test_a_broker_process_does_not_import_hypothesis_for_kio():
    script = (
        "import sys; from headrace.protocol import messages; messages.request_is_flexible(3, 12);"
        "assert 'hypothesis' not in sys.modules; import hypothesis; assert hypothesis.__version__"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
