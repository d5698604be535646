"""A pipeline tried out on a sample: the tables of a run, again after each change, and nothing left behind."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
from pipeline_runs import Bench

from headrace.streaming.launching import open_pipeline
from headrace.streaming.trial import Trial, Trials

CODE = """
tried = hr.topic("tried", schema="id int, lsn int, op string, v double")

@hr.table(key="id", order_by="lsn", delete="op = 'd'", expect={{"known": hr.quarantine("v is not null")}})
def latest(tried):
    return tried

@hr.table(key="op")
def totals(latest):
    return latest.groupBy("op").agg(F.sum({column}).alias("v"))

@hr.to_topic("tried-out")
def sent(tried):
    return tried.select("id")
"""


def test_each_save_shows_the_tables_of_the_code_as_it_is(bench: Bench) -> None:
    def run(column: str) -> Trial:
        loaded, graph = open_pipeline(bench.file(CODE.format(column=column)))
        return trials.run(loaded, graph)

    bench.send(
        "tried",
        [{"id": n, "lsn": 1, "op": "u", "v": float(n)} for n in range(3)]
        + [
            {"id": 1, "lsn": 3, "op": "d", "v": 0.0},
            {"id": 1, "lsn": 2, "op": "u", "v": 7.0},
            {"id": 5, "lsn": 1},
            b"no json",
        ],
    )
    stopped = False
    trials = Trials(bench.spark, bench.settings(), records_max=100, shown_max=1, stopped=lambda: stopped)
    scratch = trials._scratch
    try:
        first = run('"v"')
        latest, totals, sent = first.nodes
        assert (first.records, first.unparsed) == ({"tried": 7}, {"tried": 1})
        assert (latest.rows, latest.left_out, len(latest.sample)) == (2, 1, 1)
        assert latest.columns[-1] == ("v", "double")
        assert totals.sample == (("u", "2.0"),)
        assert (sent.rows, sent.columns) == (6, (("id", "int"),))
        second = run('F.col("v") * 10')
        assert second.nodes[1].sample == (("u", "20.0"),)
        # What the change does not touch is shown again, not run again.
        assert [(node.node, node.before) for node in second.nodes] == [
            ("latest", True),
            ("totals", False),
            ("sent", True),
        ]
        assert replace(second.nodes[0], before=False) == latest
        assert not os.path.exists(bench.tables)
        # A function that fails is reported for its node, with its line; the others are shown.
        failed = run("F.raise_error('no').cast('double')")
        assert [bool(node.error) for node in failed.nodes] == [False, True, False]
        # Ctrl-C in a batch fails it like anything else does; then the trial ends.
        stopped = True
        with pytest.raises(KeyboardInterrupt):
            run("F.raise_error('no').cast('double')")
    finally:
        trials.close()
    assert not os.path.exists(scratch)
