"""What a crash can leave at the end of a log is cut, what it can take from the indexes is made again.

The broker is killed, then its files are damaged as a loss of power would: bytes behind the last batch that
are half a batch, zeros or noise; indexes that are missing, short or full of zeros; a torn snapshot or journal.
"""

from __future__ import annotations

import glob
import os
import random

import pytest
import raw

SETTINGS = {"log.flush.offset.checkpoint.interval.ms": "50"}


def half_a_batch(rng: random.Random, path: str) -> None:
    whole = raw.batch(raw.values(rng.randbytes(500), rng.randbytes(500)), base_offset=rng.randrange(1 << 20))
    _append(path, whole[: rng.randrange(1, len(whole))])


def batch_with_a_wrong_crc(rng: random.Random, path: str) -> None:
    _append(path, raw.batch(raw.values(b"never acknowledged"), base_offset=1 << 30, crc_flip=1))


def zeros(rng: random.Random, path: str) -> None:
    _append(path, bytes(rng.randrange(1, 10_000)))


def noise(rng: random.Random, path: str) -> None:
    _append(path, rng.randbytes(rng.randrange(1, 10_000)))


def no_index(rng: random.Random, path: str) -> None:
    for index in _indexes(path):
        os.unlink(index)


def short_index(rng: random.Random, path: str) -> None:
    for index in _indexes(path):
        os.truncate(index, rng.randrange(0, os.path.getsize(index) + 1))


def index_with_zeros_behind(rng: random.Random, path: str) -> None:
    """As Kafka leaves its own after a crash: it reserves them in one piece."""
    for index in _indexes(path):
        _append(index, bytes(96 * rng.randrange(1, 100)))


def torn_snapshot(rng: random.Random, path: str) -> None:
    for snapshot in glob.glob(os.path.join(os.path.dirname(path), "*.snapshot")):
        os.truncate(snapshot, rng.randrange(0, os.path.getsize(snapshot) + 1))


def torn_journal(rng: random.Random, path: str) -> None:
    journal = os.path.join(os.path.dirname(os.path.dirname(path)), "headrace-topics.journal")
    _append(journal, b'{"seq":1000,"op":"topic","name":"half a li')


DAMAGES = [
    half_a_batch,
    batch_with_a_wrong_crc,
    zeros,
    noise,
    no_index,
    short_index,
    index_with_zeros_behind,
    torn_snapshot,
]
PARTITIONS = len(DAMAGES)  # one kind of damage to each


def test_torn_files_are_repaired_at_the_start_and_nothing_acknowledged_is_lost(start_broker, tmp_path, rng, rounds):
    data = str(tmp_path / "data")
    broker = start_broker(SETTINGS, data=data)
    written: dict[int, list[bytes]] = {index: [] for index in range(PARTITIONS)}
    with raw.Client(broker.bootstrap) as client:
        topic = raw.make_topic(client, PARTITIONS, "torn", **{"internal.segment.bytes": 30_000})
        producer_id = client.call(raw.INIT_PRODUCER_ID, 4, {"transactional_id": None}).producer_id
    for _ in range(rounds(2)):
        with raw.Client(broker.bootstrap) as client:
            for index, values in written.items():
                for _ in range(rng.randrange(5, 40)):
                    more = [b"%d " % len(values) + rng.randbytes(rng.randrange(2000)) for _ in range(3)]
                    producer = (producer_id, 0, len(values))
                    answer = raw.produce(
                        client, topic, raw.batch(raw.values(*more), producer=producer), partition=index
                    )
                    assert (answer.error_code, answer.base_offset) == (0, len(values))
                    values += more
        broker.kill()
        for index, damage in enumerate(rng.sample(DAMAGES, len(DAMAGES))):
            print(f"partition {index}: {damage.__name__}")
            damage(rng, active_log(data, index))
        torn_journal(rng, active_log(data, 0))
        broker = start_broker(SETTINGS, data=data)
        with raw.Client(broker.bootstrap) as client:
            for index, values in written.items():
                assert read_all(client, topic, index) == values, f"partition {index}"
                again = raw.batch(raw.values(*values[-3:]), producer=(producer_id, 0, len(values) - 3))
                answer = raw.produce(client, topic, again, partition=index)
                assert answer.error_code == 0
                assert answer.base_offset == len(values) - 3, "what was sent again is not written again"
                assert raw.list_offset(client, topic, index) == len(values)


@pytest.mark.parametrize("damage", [no_index, short_index, index_with_zeros_behind], ids=lambda d: d.__name__)
def test_records_can_be_looked_up_after_the_index_was_damaged(start_broker, tmp_path, rng, damage):
    data = str(tmp_path / "data")
    broker = start_broker(data=data)
    with raw.Client(broker.bootstrap) as client:
        topic = raw.make_topic(client, 1, "torn")
        for number in range(300):
            record = raw.Record(b"%d" % number + bytes(500), timestamp=1_700_000_000_000 + 1000 * number)
            assert raw.produce(client, topic, raw.batch([record])).error_code == 0
    broker.kill()
    damage(rng, active_log(data, 0))
    broker = start_broker(data=data)
    with raw.Client(broker.bootstrap) as client:
        for number in rng.sample(range(300), 20):
            at = 1_700_000_000_000 + 1000 * number
            assert raw.list_offset(client, topic, timestamp=at) == number
            first = raw.records_of(raw.fetch(client, topic, number).records)[0]
            assert first.offset == number
            assert (first.value or b"").startswith(b"%d\0" % number)
    broker.stop()
    assert os.path.getsize(active_log(data, 0)[:-4] + ".index") > 0


def active_log(data: str, index: int) -> str:
    return max(glob.glob(os.path.join(data, f"torn-{index}", "*.log")))


def read_all(client: raw.Client, topic: raw.Topic, index: int) -> list[bytes]:
    found: list[bytes] = []
    end = raw.list_offset(client, topic, index)
    while len(found) < end:
        records = raw.records_of(raw.fetch(client, topic, len(found), partition=index).records)
        assert records, f"nothing is read at offset {len(found)} below the end, {end}"
        more = [record for record in records if record.offset >= len(found)]
        assert [record.offset for record in more] == list(range(len(found), len(found) + len(more)))
        found += [record.value or b"" for record in more]
    return found


def _append(path: str, data: bytes) -> None:
    with open(path, "ab") as file:
        file.write(data)


def _indexes(log: str) -> list[str]:
    return [path for path in (log[:-4] + ".index", log[:-4] + ".timeindex") if os.path.exists(path)]
