"""`latency="realtime"`: from topic to topic in Spark's real-time mode; what cannot be parsed is still quarantined."""

from __future__ import annotations

import json

from pipeline_runs import Bench
from waits import eventually

CODE = """
quick = hr.topic("quick", schema="id int, k string")

@hr.to_topic("quick-out", key="k", latency="realtime")
def fast(quick):
    return quick.where("id < 100")
"""


def test_rows_pass_in_real_time_and_bad_ones_are_kept(bench: Bench) -> None:
    # One partition: each keeps one of the session's two cores, and the quarantine needs the other.
    bench.one_partition("quick")
    path = bench.file(CODE)
    bench.send("quick", [{"id": 1, "k": "a"}, b"{bad", {"id": 500, "k": "a"}])
    with bench.running(path) as runner:
        eventually(lambda: len(bench.records("quick-out")) == 1, "the first row")
        bench.send("quick", [{"id": 2, "k": "b"}])
        # Records of a batch that has not ended are there already: that is the point of it.
        eventually(lambda: len(bench.records("quick-out")) == 2, "the second row")
        eventually(lambda: len(bench.quarantine("fast")) == 1, "the bad record")
        assert runner.progress.nodes["fast"].status == "running"
    assert sorted(json.loads(record.value())["id"] for record in bench.records("quick-out")) == [1, 2]
    assert bench.quarantine("fast")[0].value == b"{bad"
    # With --once the same node processes what is there and ends.
    bench.send("quick", [{"id": 3, "k": "b"}])
    bench.once(path)
    assert {json.loads(record.value())["id"] for record in bench.records("quick-out")} == {1, 2, 3}
