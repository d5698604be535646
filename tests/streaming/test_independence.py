"""Every kind of node, and graphs of them: any split of a log into batches and runs gives what one query over it gives.

A log is seeded: changes that come again and out of order, events that are late within what is declared. It is sent in
parts of any size, each part is a run that begins where the last one ended, with batches of any size; after each the
tables must be what DuckDB finds in the log. Last, a replay in one batch must give the same.

`make independence` does this with many logs, and kills the pipeline once in each.
"""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from oracle import Oracle, stored_rows
from pipeline_runs import Bench, commits, kill_when

FACTS, CLICKS, CHANGES, HOMES, PARTS = "facts", "clicks", "changes", "homes", "parts"
CODE = """
from pyspark.sql.streaming import StatefulProcessor
facts = hr.topic("{prefix}facts", schema="id int, cust string, amount long, seen timestamp", {batches})
clicks = hr.topic("{prefix}clicks", schema="id int, page string", {batches})
changes = hr.topic("{prefix}changes", schema="id int, lsn long, op string, cust string, amount long", {batches})
homes = hr.topic("{prefix}homes", schema="cust string, lsn long, op string, region string", {batches})
parts = hr.topic("{prefix}parts", schema="id int, lsn long, op string, name string, age long", {batches})
CHANGED = dict(order_by="lsn", delete="op = 'd'", leave_out="op")


@hr.table
def appended(facts):
    return facts.where("amount > 5")

@hr.to_topic("{prefix}out", key="cust")
def sent(facts):
    return facts.where("amount > 5").select("id", "cust")

@hr.table
def unique(facts):
    return facts.dropDuplicates(["id"]).select("id", "cust", "amount")

@hr.table(key="cust", delete="amount > 100")
def summed(facts):
    return facts.groupBy("cust").agg(F.sum("amount").alias("amount"), F.count("*").alias("facts"))

@hr.table(mode="complete")
def rewritten(facts):
    return facts.groupBy("amount").agg(F.count("*").alias("facts"))

@hr.table
def windows(facts):
    timed = facts.withWatermark("seen", "10 seconds")
    counts = timed.groupBy(F.window("seen", "5 seconds")).agg(F.count("*").alias("facts"))
    return counts.select(F.col("window.end").alias("ended"), "facts")

@hr.table
def sessions(facts):
    session = F.session_window("seen", "4 seconds")
    counts = facts.withWatermark("seen", "10 seconds").groupBy("cust", session).agg(F.count("*").alias("facts"))
    return counts.select("cust", F.col("session_window.end").alias("ended"), "facts")

@hr.table
def joined(facts, clicks):
    pages = clicks.select(F.col("id").alias("click"), "page")
    return facts.join(pages, facts.id == pages.click).select("id", "cust", "page")

def count(key, frames, state):
    import pandas as pd
    total = (state.get[0] if state.exists else 0) + sum(len(frame) for frame in frames)
    state.update((total,))
    yield pd.DataFrame([dict(cust=key[0], facts=total)])

@hr.table(key="cust")
def counted(facts):
    rows = facts.select("cust", "id").groupBy("cust")
    return rows.applyInPandasWithState(count, "cust string, facts long", "n long", "update", "NoTimeout")

@hr.table(key="cust")
def tallied(facts):
    rows = facts.select("cust", "id").groupBy("cust")
    return rows.transformWithState(Tally(), "cust string, facts long", "Update", "None")

class Tally(StatefulProcessor):
    def init(self, handle):
        self.total = handle.getValueState("total", "n long")

    def handleInputRows(self, key, rows, timers):
        from pyspark.sql import Row
        before = self.total.get()[0] if self.total.exists() else 0
        self.total.update((before + sum(1 for _ in rows),))
        yield Row(cust=key[0], facts=self.total.get()[0])

    def close(self):
        pass

@hr.table(expect={"small": hr.quarantine("amount < 10")})
def checked(facts):
    return facts.select("id", "amount")

@hr.table(key="id")
def latest(clicks):
    return clicks

@hr.table(key="id", **CHANGED)
def current(changes):
    return changes

@hr.table(key="id", truncate="op = 'u' and amount = 11", **CHANGED)
def cleared(changes):
    return changes

@hr.table(key="id", history=True, **CHANGED)
def versions(changes):
    return changes

@hr.table(key="id", order_by="lsn", delete="op = 'd'", leave_out=["op", "lsn"], nulls="unchanged")
def merged(parts):
    return parts

@hr.table(key="cust", **CHANGED)
def places(homes):
    return homes

@hr.table(key="cust")
def totals(current):
    return current.groupBy("cust").agg(F.sum("amount").alias("amount"), F.max("lsn").alias("lsn"))

@hr.table(key="region")
def regions(current, places):
    return current.join(places, "cust").groupBy("region").agg(F.sum("amount").alias("amount"))

@hr.table(key="id")
def homed(current, places):
    return current.join(places.select("cust", "region"), "cust", "left").select("id", "cust", "region")

@hr.table(key="cust")
def custs(current):
    return current.select("cust").dropDuplicates()

@hr.table(key="began")
def slots(current):
    slot = F.window(F.timestamp_seconds("amount"), "4 seconds", "2 seconds")
    counts = current.groupBy(slot).agg(F.count("*").alias("changes"))
    return counts.select(F.col("window.start").alias("began"), "changes")

@hr.table(key="id")
def large(current):
    return current.where("amount > 5").select("id", "cust")

@hr.table(key=["id", "page"])
def viewed(current, appended_clicks):
    return current.join(appended_clicks, "id").groupBy("id", "page").agg(F.count("*").alias("clicks"))

@hr.table
def appended_clicks(clicks):
    return clicks

@hr.materialized
def best(totals, regions):
    return totals.crossJoin(regions.select("region")).orderBy(F.desc("amount"), "cust", "region").limit(3)
"""
TABLES = {
    FACTS: "id integer, cust varchar, amount bigint, seen timestamp",
    CLICKS: "id integer, page varchar",
    CHANGES: "id integer, lsn bigint, op varchar, cust varchar, amount bigint",
    HOMES: "cust varchar, lsn bigint, op varchar, region varchar",
    PARTS: "id integer, lsn bigint, op varchar, name varchar, age bigint",
}
_LAST = "(select * from {0} qualify row_number() over (partition by {1} order by lsn desc) = 1)"
_CURRENT = f"(select * exclude (n) from {_LAST.format(CHANGES, 'id')} where op <> 'd')"
_PLACES = f"(select * exclude (n) from {_LAST.format(HOMES, 'cust')} where op <> 'd')"
_EMPTIES = "(op = 'u' and amount = 11)"
_KEPT = f"(select * from changes where not {_EMPTIES})"
_TOTALS = f"(select cust, sum(amount)::bigint as amount, max(lsn) as lsn from {_CURRENT} group by cust)"
_REGIONS = f"""(select region, sum(amount)::bigint as amount from {_CURRENT} c join {_PLACES} p on c.cust = p.cust
    group by region)"""
_WATERMARK = "(select max(seen) - interval '10 seconds' from facts)"
ANSWERS = {
    "appended": "select id, cust, amount, seen from facts where amount > 5",
    "unique": "select distinct id, cust, amount from facts",
    "summed": """select cust, sum(amount)::bigint as amount, count(*) as facts from facts
        group by cust having sum(amount) <= 100""",
    "rewritten": "select amount, count(*) as facts from facts group by amount",
    "windows": f"""select time_bucket(interval '5 seconds', seen) + interval '5 seconds' as ended, count(*) as facts
        from facts group by ended having ended <= {_WATERMARK}""",
    "sessions": f"""with marked as (
            select cust, seen, lag(seen) over (partition by cust order by seen) as before from facts),
        numbered as (select cust, seen, sum((before is null or seen > before + interval '4 seconds')::int)
            over (partition by cust order by seen) as session from marked)
        select cust, max(seen) + interval '4 seconds' as ended, count(*) as facts from numbered group by cust, session
        having ended <= {_WATERMARK}""",
    "joined": "select f.id, f.cust, c.page from facts f join clicks c on f.id = c.id",
    "counted": "select cust, count(*) as facts from facts group by cust",
    "tallied": "select cust, count(*) as facts from facts group by cust",
    "checked": "select id, amount from facts where amount < 10",
    "latest": "select id, page from clicks qualify row_number() over (partition by id order by n desc) = 1",
    "current": f"select id, lsn, cust, amount from {_CURRENT}",
    "cleared": f"""select * exclude (n, op) from {_LAST.format(_KEPT, "id")}
        where op <> 'd' and lsn > (select coalesce(max(lsn), 0) from changes where {_EMPTIES})""",
    "versions": """select id, cust, amount, lsn, lsn as valid_from, valid_to, valid_to is null as is_current from (
            select *, lead(lsn) over (partition by id order by lsn) as valid_to
            from (select distinct id, lsn, op, cust, amount from changes))
        where op <> 'd'""",
    "merged": """select p.id, arg_max(name, lsn) filter (name is not null) as name,
            arg_max(age, lsn) filter (age is not null) as age
        from parts p left join (select id, max(lsn) as cut from parts where op = 'd' group by id) d on p.id = d.id
        where op <> 'd' and (cut is null or lsn > cut) group by p.id""",
    "places": f"select cust, lsn, region from {_PLACES}",
    "totals": f"select * from {_TOTALS}",
    "regions": f"select * from {_REGIONS}",
    "homed": f"select c.id, c.cust, p.region from {_CURRENT} c left join {_PLACES} p on c.cust = p.cust",
    "custs": f"select distinct cust from {_CURRENT}",
    "slots": f"""select make_timestamp(unnest([second, second - 2]) * 1000000) as began, count(*) as changes
        from (select amount // 2 * 2 as second from {_CURRENT}) group by began""",
    "large": f"select id, cust from {_CURRENT} where amount > 5",
    "viewed": f"""select c.id, page, count(*) as clicks from {_CURRENT} c join clicks k on c.id = k.id
        group by c.id, page""",
    "appended_clicks": "select id, page from clicks",
    "best": f"""select t.cust, t.amount, t.lsn, r.region from {_TOTALS} t, {_REGIONS} r
        order by t.amount desc, t.cust, r.region limit 3""",
}
# Facts are in one partition: what a watermark calls late is told by their order there.
KEYS = {FACTS: "", CLICKS: "id", CHANGES: "id", HOMES: "cust", PARTS: "id"}


class Log:
    """Five topics in the order in which their records are sent."""

    def __init__(self, chance: random.Random, size: int) -> None:
        self.records: list[tuple[str, dict[str, Any]]] = []
        made: dict[str, list[dict[str, Any]]] = {
            FACTS: _jostled(chance, [_fact(chance, n) for n in range(size)], back=4),
            CLICKS: [{"id": chance.randrange(12), "page": chance.choice("pqr")} for _ in range(size // 3)],
            CHANGES: _jostled(chance, _life(chance, size, "id", range(9)), back=size),
            HOMES: _jostled(chance, _life(chance, size // 3, "cust", "abcd"), back=size),
            PARTS: _jostled(chance, [_part(chance, row) for row in _life(chance, size, "id", range(6))], back=size),
        }
        queues = {topic: list(reversed(rows)) for topic, rows in made.items()}
        while any(queues.values()):  # of each topic the order stays
            topic = chance.choice([topic for topic, rows in queues.items() for _ in rows])
            self.records.append((topic, queues[topic].pop()))


def _fact(chance: random.Random, number: int) -> dict[str, Any]:
    at = f"2026-01-01T00:{number // 60:02}:{number % 60:02}.{chance.randrange(1000):03}Z"
    return {"id": number, "cust": chance.choice("abcd"), "amount": chance.randrange(12), "seen": at}


def _life(chance: random.Random, size: int, key: str, keys: Any) -> list[dict[str, Any]]:
    rows = []
    for lsn in range(1, size + 1):
        row = {key: chance.choice(list(keys)), "lsn": lsn, "op": "d" if chance.random() < 0.25 else "u"}
        rows.append({"cust": chance.choice("abcd"), "amount": chance.randrange(12),
                     "region": chance.choice(["north", "south"]), **row})  # fmt: skip
    return rows


def _part(chance: random.Random, row: dict[str, Any]) -> dict[str, Any]:
    """A change that sets some columns only."""
    name, age = (
        value if row["op"] == "u" and chance.random() < 0.5 else None for value in (f"n{row['lsn']}", row["lsn"])
    )
    return {**row, "name": name, "age": age}


def _jostled(chance: random.Random, rows: list[dict[str, Any]], *, back: int) -> list[dict[str, Any]]:
    """Neighbours change places, and now and then some of the last `back` rows come again."""
    made: list[dict[str, Any]] = []
    for number, row in enumerate(rows):
        made.insert(max(0, len(made) - chance.randrange(3)), row)
        if chance.random() < 0.08:
            begin = chance.randrange(max(0, number - back), number + 1)
            made += rows[begin : begin + chance.randrange(1, 6)][: number + 1 - begin]
    return made


class World:
    def __init__(self, bench: Bench, seed: int) -> None:
        self.bench, self.seed, self.prefix = bench, seed, f"independence-{seed}-"
        self.chance = random.Random(seed)
        self.oracle = Oracle(TABLES)

    def file(self, batches: str) -> str:
        return self.bench.file(CODE.replace("{prefix}", self.prefix).replace("{batches}", batches), "shop.py")

    def send(self, records: list[tuple[str, dict[str, Any]]]) -> None:
        for topic, key in KEYS.items():
            rows = [row for given, row in records if given == topic]
            self.bench.send(self.prefix + topic, rows, key=lambda row, key=key: str(row.get(key)))
            self.oracle.add(topic, rows)

    def check(self, version: int, said: str) -> None:
        for table, answer in ANSWERS.items():
            found = stored_rows(self.bench.version_path(table, version))
            total, wrong = self.oracle.differences(answer, found)
            assert not wrong, f"seed {self.seed}, {said}: {table}: {len(wrong)} rows differ from {total}: {wrong[:5]}"
        aside = stored_rows(self.bench.version_path("_quarantine/checked", version)).num_rows
        assert [(aside,)] == self.oracle.rows("select count(*) from facts where amount >= 10"), said
        suffix = "" if version == 1 else f".v{version}"
        records = self.bench.records(f"{self.prefix}out{suffix}")
        wanted = self.oracle.rows("select id, cust from facts where amount > 5")
        assert sorted((_json(record)["id"], _json(record)["cust"]) for record in records) == sorted(wanted), said


def _json(record: Any) -> dict[str, Any]:
    return json.loads(record.value())  # type: ignore[no-any-return]


def test_any_split_of_a_log_gives_the_tables_of_one_query_over_it_and_so_does_a_replay(
    bench: Bench, request: pytest.FixtureRequest
) -> None:
    logs = request.config.getoption("--logs")
    if logs is None:
        pytest.skip("minutes long; make independence runs it")
    first = request.config.getoption("--seed") or 12
    for seed in range(first, first + logs):
        bench.tables = str(bench.directory / f"tables-{seed}")
        one_log(World(bench, seed), runs=2 if logs == 1 else 4, killed=logs > 1)


def one_log(world: World, *, runs: int, killed: bool) -> None:
    chance, bench = world.chance, world.bench
    records = Log(chance, 60).records
    cuts = sorted(chance.sample(range(60, len(records)), runs - 1))
    file, batches = world.file(f"max_offsets_per_trigger={chance.randrange(25, 60)}"), 0
    for number, (begin, end) in enumerate(zip([0, *cuts], [*cuts, len(records)], strict=True)):
        world.send(records[begin:end])
        if killed and number == 1:
            before = commits(bench, "current")
            kill_when(bench, file, lambda: commits(bench, "current") > before)  # noqa: B023 - called in this round
        batches += sum(node.batches for node in bench.once(file).nodes.values())
        world.check(1, f"run {number} of {runs}, up to record {end}")
    replayed = bench.replay_once(world.file("max_offsets_per_trigger=None"))
    world.check(replayed.version, "replay in one batch")
    nodes, kill = len(replayed.nodes), "killed once, " if killed else ""
    print(f"seed {world.seed}: {len(records)} records, {runs} runs, {batches} batches of {nodes} nodes, {kill}replayed")
