"""A loss of power takes what was never flushed. With flush.messages=1 an acknowledged record was.

`PowerLossDisk` knows how much of each file a flush has made safe; `what_is_left` copies a data directory as it
would be found afterwards: of a log what is safe and, by chance, some of the rest; of the small files that are
written without a flush, nothing or all.
"""

from __future__ import annotations

import os
import random
import time
from functools import partial

import raw
from faulty_disk import FaultyDisk

SYNC_S = 0.003  # an answer that does not wait for it comes first
UNFLUSHED = (".index", ".timeindex", ".snapshot", "leader-epoch-checkpoint")


class PowerLossDisk(FaultyDisk):
    """What it finds in `data` is safe."""

    def __init__(self, data: str) -> None:
        super().__init__()
        self._safe_bytes = {
            os.path.join(directory, name): os.path.getsize(os.path.join(directory, name))
            for directory, _, names in os.walk(data)
            for name in names
        }

    def sync(self, fd: int) -> None:
        path = os.readlink(f"/proc/self/fd/{fd}")
        size = os.fstat(fd).st_size
        time.sleep(SYNC_S)
        super().sync(fd)
        self._safe_bytes[path] = max(size, self.safe_bytes(path))

    def safe_bytes(self, path: str) -> int:
        return self._safe_bytes.get(path, 0)

    def what_is_left(self, data: str, to: str, rng: random.Random) -> None:
        for directory, _, names in os.walk(data):
            target = os.path.join(to, os.path.relpath(directory, data))
            os.makedirs(target, exist_ok=True)
            for name in names:
                with open(os.path.join(directory, name), "rb") as file:
                    content = file.read()
                if name.endswith(".log"):
                    safe = self.safe_bytes(os.path.join(directory, name))
                    content = content[: rng.choice((safe, rng.randint(safe, len(content)), len(content)))]
                elif name.endswith(UNFLUSHED) and rng.random() < 0.5:
                    content = b""
                with open(os.path.join(target, name), "wb") as file:
                    file.write(content)


def test_answer_with_flush_messages_1_comes_after_the_flush_that_covers_it(start_node, tmp_path):
    data = str(tmp_path / "data")
    disk = PowerLossDisk(data)
    node = start_node(log_dirs=(data,), disk=disk)
    with raw.Client(node.bootstrap) as client:
        topic = raw.make_topic(client, **{"flush.messages": 1})
        log = os.path.join(data, f"{topic.name}-0", f"{0:020d}.log")
        batches = [raw.batch(raw.values(b"%d" % number)) for number in range(40)]
        for batch in batches:
            client.send(raw.PRODUCE, 13, raw.produce_body((topic, 0, batch)))
        written = 0
        for batch in batches:
            written += len(batch)
            assert client.read().responses[0].partition_responses[0].error_code == 0
            assert disk.safe_bytes(log) >= written
        assert raw.list_offset(client, topic) == len(batches)


def test_log_after_a_loss_of_power_is_a_prefix_that_holds_all_that_was_flushed(start_node, tmp_path, rng, rounds):
    data = str(tmp_path / "data")
    settings = {"log_flush_offset_checkpoint_interval_ms": 30, "log_index_interval_bytes": 200}
    node = start_node(log_dirs=(data,), disk=PowerLossDisk(data), **settings)
    kept: dict[str, list[bytes]] = {"flushed": [], "not": []}
    with raw.Client(node.bootstrap) as client:
        made = {
            name: raw.make_topic(
                client, 1, name, **{"internal.segment.bytes": 8000, "flush.messages": 1 if name == "flushed" else 10**9}
            )
            for name in kept
        }
        producer_id = client.call(raw.INIT_PRODUCER_ID, 4, {"transactional_id": None}).producer_id
    for turn in range(rounds(4)):
        with raw.Client(node.bootstrap) as client:
            for _ in range(rng.randrange(10, 60)):
                name = rng.choice(list(kept))
                value = b"%d " % len(kept[name]) + rng.randbytes(rng.randrange(400))
                batch = raw.batch(raw.values(value), producer=(producer_id, 0, len(kept[name])))
                answer = raw.produce(client, made[name], batch)
                assert (answer.error_code, answer.base_offset) == (0, len(kept[name]))
                kept[name].append(value)
        left = str(tmp_path / f"left-{turn}")
        # On the loop, so that no housekeeping is half done; every step of it has its own tests.
        node.on_loop(partial(node.disk.what_is_left, node.node.settings.log_dirs[0], left, rng))
        node.stop()
        node = start_node(log_dirs=(left,), disk=PowerLossDisk(left), **settings)
        with raw.Client(node.bootstrap) as client:
            assert read_all(client, made["flushed"]) == kept["flushed"]
            survived = read_all(client, made["not"])
            assert survived == kept["not"][: len(survived)]
            kept["not"] = survived


def read_all(client: raw.Client, topic: raw.Topic) -> list[bytes]:
    found: list[bytes] = []
    end = raw.list_offset(client, topic)
    while len(found) < end:
        records = raw.records_of(raw.fetch(client, topic, len(found)).records)
        more = [record for record in records if record.offset >= len(found)]
        assert more, f"nothing is read at offset {len(found)} below the end, {end}"
        assert more[0].offset == len(found)
        found += [record.value or b"" for record in more]
    return found
