import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from aiokafka import codec as reference
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.core.errors import InvariantError, PeerError
from headrace.protocol import compression
from headrace.protocol.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD, compress, decompress

CODECS = [NONE, GZIP, SNAPPY, LZ4, ZSTD]
REAL = [GZIP, SNAPPY, LZ4, ZSTD]
TEXT = b"".join(b"line %d of a text that repeats itself\n" % i for i in range(5000))

ENCODERS = {
    GZIP: reference.gzip_encode,
    SNAPPY: reference.snappy_encode,
    LZ4: reference.lz4_encode,
    ZSTD: reference.zstd_encode,
}
DECODERS = {
    GZIP: reference.gzip_decode,
    SNAPPY: reference.snappy_decode,
    LZ4: reference.lz4_decode,
    ZSTD: reference.zstd_decode,
}


def error_code(codec: int, data: bytes | bytearray) -> int | None:
    try:
        decompress(codec, data, 1 << 20)
    except PeerError as error:
        return error.code
    return None


@pytest.mark.parametrize("codec", CODECS)
@given(data=st.binary(min_size=1, max_size=3000))
@settings(deadline=None, max_examples=50)
def test_what_is_compressed_is_read_back(codec: int, data: bytes) -> None:
    assert decompress(codec, compress(codec, data), len(data)) == data


@pytest.mark.parametrize("codec", REAL)
@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview])
def test_a_client_reads_what_we_write_and_we_read_what_it_writes(codec: int, wrap: type) -> None:
    for data in (b"x", TEXT, os.urandom(100_000)):
        assert bytes(DECODERS[codec](compress(codec, wrap(data)))) == data
        assert decompress(codec, wrap(bytes(ENCODERS[codec](data)))) == data


def test_snappy_without_framing_is_read_too() -> None:
    import cramjam

    assert decompress(SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT))) == TEXT


def test_snappy_is_written_in_framed_blocks_of_32_kib_as_the_java_client_writes_it() -> None:
    framed = compress(SNAPPY, os.urandom(70_000))
    assert framed[:16] == b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    sizes = []
    position = 16
    while position < len(framed):
        (length,) = struct.unpack_from(">i", framed, position)
        sizes.append(len(decompress(SNAPPY, framed[position + 4 : position + 4 + length])))
        position += 4 + length
    assert sizes == [32768, 32768, 70_000 - 65536]


def test_lz4_blocks_are_independent_because_the_java_client_decodes_each_by_itself() -> None:
    framed = compress(LZ4, TEXT)
    assert framed[:4] == b"\x04\x22\x4d\x18"
    assert framed[4] & 0x20


@pytest.mark.parametrize(
    ("codec", "low", "high"), [(GZIP, 1, 9), (LZ4, 1, 17), (LZ4, 9, 17), (ZSTD, -131072, 22), (ZSTD, 1, 19)]
)
def test_a_higher_level_compresses_more(codec: int, low: int, high: int) -> None:
    data = Path(os.__file__).read_bytes()  # prose and code, as real values are
    small, large = compress(codec, data, high), compress(codec, data, low)
    assert len(small) < len(large)
    assert decompress(codec, small) == decompress(codec, large) == data


@pytest.mark.parametrize(("codec", "level"), [(GZIP, -1), (GZIP, 6), (LZ4, 9), (ZSTD, 3)])
def test_kafkas_default_level_is_what_no_level_means(codec: int, level: int) -> None:
    assert compress(codec, TEXT, level) == compress(codec, TEXT)


@pytest.mark.parametrize("codec", CODECS)
def test_output_may_reach_the_bound_and_not_exceed_it(codec: int) -> None:
    blob = compress(codec, TEXT)
    assert decompress(codec, blob, len(TEXT)) == TEXT
    with pytest.raises(PeerError) as caught:
        decompress(codec, blob, len(TEXT) - 1)
    assert caught.value.code == 2


def test_the_bound_of_framed_snappy_counts_all_blocks() -> None:
    with pytest.raises(PeerError):
        decompress(SNAPPY, compress(SNAPPY, bytes(100_000)), 99_999)


BOMB_SQUAD = """
import resource, sys
from headrace.core.errors import PeerError
from headrace.protocol.compression import decompress

codec, bomb = int(sys.argv[1]), sys.stdin.buffer.read()
try:
    decompress(codec, bomb[:10], 1 << 20)  # loads the library
except PeerError:
    pass
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    decompress(codec, bomb, 1 << 20)
except PeerError:
    sys.exit(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before > 8 << 10)
sys.exit("the bomb went off")
"""


@pytest.mark.parametrize("codec", REAL)
def test_a_bomb_of_64_mib_takes_a_few_at_most_where_one_is_the_bound(codec: int) -> None:
    bomb = compress(codec, bytes(64 << 20))
    child = subprocess.run([sys.executable, "-c", BOMB_SQUAD, str(codec)], input=bomb, check=False)
    assert child.returncode == 0


@pytest.mark.parametrize("codec", REAL)
@given(data=st.binary(max_size=200))
@settings(deadline=None, max_examples=100)
def test_garbage_is_a_corrupt_message(codec: int, data: bytes) -> None:
    assert error_code(codec, data) in (None, 2)


@pytest.mark.parametrize("codec", REAL)
@given(data=st.data())
@settings(deadline=None, max_examples=100)
def test_a_cut_or_changed_blob_never_raises_anything_but_a_corrupt_message(codec: int, data: st.DataObject) -> None:
    blob = bytearray(compress(codec, TEXT[:2000]))
    del blob[data.draw(st.integers(0, len(blob))) :]
    for _ in range(data.draw(st.integers(0, 3))):
        if blob:
            blob[data.draw(st.integers(0, len(blob) - 1))] = data.draw(st.integers(0, 255))
    assert error_code(codec, blob) in (None, 2)


@pytest.mark.parametrize("codec", [GZIP, LZ4, ZSTD])
def test_a_cut_blob_is_refused(codec: int) -> None:
    blob = compress(codec, TEXT)
    for cut in (0, 1, 5, len(blob) // 2, len(blob) - 1):
        with pytest.raises(PeerError):
            decompress(codec, blob[:cut])


def test_an_unknown_codec_is_the_clients_fault_on_reading_and_ours_on_writing() -> None:
    with pytest.raises(PeerError, match="codec 5"):
        decompress(5, b"x")
    with pytest.raises(InvariantError, match="codec 5"):
        compress(5, b"x")


def test_importing_the_module_does_not_load_the_codecs() -> None:
    code = f"import sys, {compression.__name__}; sys.exit('cramjam' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("version", [0, -1])
def test_snappy_of_a_version_that_never_was_is_refused(version: int) -> None:
    framed = bytearray(compress(SNAPPY, TEXT))
    assert decompress(SNAPPY, bytes(framed)) == TEXT
    struct.pack_into(">i", framed, 8, version)
    with pytest.raises(PeerError, match="xerial version"):
        decompress(SNAPPY, bytes(framed))
