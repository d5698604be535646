"""How long a newcomer waits for a first table: `headrace pipeline run --once` against the same job in plain PySpark.

Both read from the same Headrace, so that only the work of Spark is compared, and each run is a process of its own on
local[*]. After each pair the tables of both sides must hold the same, or the figures are not kept.
"""

import importlib.util
import json
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import brokers
import pyarrow.compute as pc
import wire
from book import Book
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from deltalake import DeltaTable
from processes import MeasurementError, call
from shared_tools import REPOSITORY
from turns import HEADRACE
from twenty_nodes import NODES, PAGES, Live, code
from workspace import Workspace, rest

SHOP, ONE, AGAIN, TWENTY = NAMES = ("first_shop", "first_one", "first_again", "first_twenty")
STAGE = "first_table"
BY_HAND = "by hand"
VISITS = 1_000
_HERE = Path(__file__).resolve().parent
_SHOP_DIR = REPOSITORY / "examples" / "shop"
_SHOP_TOPICS = ("orders", "payments", "clicks")
_BIG_ORDERS = {HEADRACE: "big-orders", BY_HAND: "big-orders-by-hand"}
_SHOP_SUMS = {"clean_orders": "amount", "revenue": "amount", "paid_orders": "paid", "page_views": "views"}
_RUN_S_MAX, _READ_S_MAX = 600.0, 30.0
_ONE_CODE = """
import headrace as hr

source = hr.topic("%s", schema="customer string, page string, at timestamp")

@hr.table
def visits(source):
    return source
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Jobs:
    """How a job of each side is run, in a directory of its own that holds its tables."""

    broker: brokers.Broker
    directory: Path
    spark: tuple[str, str]  # of the jobs by hand: jars and the driver's memory, the same as Headrace's
    java_home: str

    def tables(self, side: str) -> Path:
        return self.directory / side.replace(" ", "-") / "tables"

    def headrace(self, file: Path) -> dict[str, float]:
        words = [*headrace("pipeline", "run", "--once", str(file)), "--bootstrap", self.broker.address]
        return self._timed(HEADRACE, [*words, "--tables", str(self.tables(HEADRACE))])

    def by_hand(self, script: str, topic: str) -> dict[str, float]:
        job = [sys.executable, str(_HERE / script), *self.spark, self.broker.address]
        # Plain Spark leaves a spark-warehouse where it is started.
        java = ["env", "-C", str(self.tables(BY_HAND).parent), f"JAVA_HOME={self.java_home}"]
        return self._timed(BY_HAND, [*java, *job, str(self.tables(BY_HAND).parent), topic])

    def _timed(self, side: str, command: list[str]) -> dict[str, float]:
        home = self.tables(side).parent
        home.mkdir(parents=True, exist_ok=True)
        # As on a user's machine, where Python keeps what it compiled; without that each start compiles pyspark again.
        timer = ["env", "-u", "PYTHONDONTWRITEBYTECODE", sys.executable, str(_HERE / "timed_job.py")]
        timer.append(str(home / "job.log"))
        took: dict[str, float] = json.loads(call([*timer, *command], seconds_max=_RUN_S_MAX))
        rest()
        return took


def run(book: Book, workspace: Workspace, wanted: set[str], *, rounds: int, shop_events: int) -> None:
    with brokers.headrace(workspace, STAGE) as broker:
        directory = workspace.fresh("job")
        jobs = Jobs(broker=broker, directory=directory, spark=_spark_words(), java_home=_java_home())

        def fresh() -> None:
            workspace.fresh(directory.name).mkdir(parents=True)

        # Uncounted: without it, whoever ran first would read Spark's jars from the disk for both.
        fresh()
        _send_visits(broker, "warm", 0)
        _visits_pair(jobs, "warm", hand_first=True)
        if SHOP in wanted:
            _send_shop(broker, shop_events)
        for number in range(rounds):
            for names, measure in (
                ((SHOP,), lambda number: _shop(book, jobs, number)),
                ((ONE, AGAIN), lambda number: _one(book, jobs, number)),
                ((TWENTY,), lambda number: _twenty(book, jobs, number)),
            ):
                _unless_failed(book, names, wanted, fresh, lambda measure=measure, number=number: measure(number))
        workspace.remove(directory.name)


def _unless_failed(
    book: Book, names: tuple[str, ...], wanted: set[str], fresh: Callable[[], None], measure: Callable[[], None]
) -> None:
    if not wanted & set(names) or book.failures.keys() & set(names):
        return
    fresh()
    try:
        measure()
    except MeasurementError as error:
        book.fail(names[0], error)


def _shop(book: Book, jobs: Jobs, number: int) -> None:
    with suppress(MeasurementError):  # there are none before the first round
        wire.delete_topics(jobs.broker.port, _BIG_ORDERS.values())
    # Spark's Kafka sink needs the topic; Headrace creates it as it starts.
    wire.create_topics(jobs.broker.port, [_BIG_ORDERS[BY_HAND]], brokers.PARTITIONS)
    sides: dict[str, Callable[[], dict[str, float]]] = {
        HEADRACE: lambda: jobs.headrace(_SHOP_DIR / "shop.py"),
        BY_HAND: lambda: jobs.by_hand("shop_by_hand.py", _BIG_ORDERS[BY_HAND]),
    }
    figures = _turn(sides, hand_first=number % 2 == 0)
    _check_same(SHOP, {side: _shop_facts(jobs, side) for side in figures})
    _keep(book, SHOP, figures)


def _one(book: Book, jobs: Jobs, number: int) -> None:
    """A first run, and one that goes on with its tables and checkpoint."""
    topic = f"visits-{number}"
    for times, name in enumerate((ONE, AGAIN), start=1):
        _send_visits(jobs.broker, topic, (times - 1) * VISITS)
        figures = _visits_pair(jobs, topic, hand_first=number % 2 == 0)
        expected = times * VISITS, times * VISITS
        facts = {side: _visits_facts(jobs.tables(side) / "visits") for side in figures}
        _check_same(name, {"sent": expected, **facts})
        _keep(book, name, figures)


def _visits_pair(jobs: Jobs, topic: str, *, hand_first: bool) -> dict[str, dict[str, float]]:
    file = jobs.directory / "one.py"
    file.write_text(_ONE_CODE % topic)
    sides = {
        HEADRACE: lambda: jobs.headrace(file),
        BY_HAND: lambda: jobs.by_hand("one_by_hand.py", topic),
    }
    return _turn(sides, hand_first=hand_first)


def _twenty(book: Book, jobs: Jobs, number: int) -> None:
    topic = f"twenty-{number}"
    file = jobs.directory / "twenty.py"
    file.write_text(code(topic))
    _send_visits(jobs.broker, topic, 0)
    figures = jobs.headrace(file)
    tables = jobs.tables(HEADRACE)
    rows = sum(_rows(tables / name) for name in NODES if name.startswith("page_"))
    if rows != VISITS:
        raise MeasurementError(f"{TWENTY}: {rows:,} of {VISITS:,} rows are in the tables of the pages")
    command = [*headrace("pipeline", "run", str(file)), "--bootstrap", jobs.broker.address, "--tables", str(tables)]
    status = headrace("pipeline", "status", "--json", "--tables", str(tables))
    waves = iter(range(VISITS, sys.maxsize, VISITS))
    with Live(command, status, log_path=tables.parent / "live.log") as live:
        figures |= live.measure(lambda: _send_visits(jobs.broker, topic, next(waves)), rows_per_wave=VISITS)
    book.add(TWENTY, HEADRACE, **figures)


def headrace(*words: str) -> list[str]:
    return [str(Path(sys.executable).with_name("headrace")), *words]


def _turn(sides: dict[str, Callable[[], dict[str, float]]], *, hand_first: bool) -> dict[str, dict[str, float]]:
    order = (BY_HAND, HEADRACE) if hand_first else (HEADRACE, BY_HAND)
    return {side: sides[side]() for side in order}


def _keep(book: Book, workload: str, figures: dict[str, dict[str, float]]) -> None:
    for side, each in figures.items():
        book.add(workload, side, **each)


def _check_same(workload: str, facts: dict[str, object]) -> None:
    (first, expected), *others = facts.items()
    for side, found in others:
        if found != expected:
            raise MeasurementError(f"{workload}: {side} has {found}, {first} has {expected}")


def _shop_facts(jobs: Jobs, side: str) -> dict[str, tuple[int, float]]:
    """Of each table the rows and the sum of one column; of the rejected orders the rows."""
    from headrace.tables.layout import PipelineLayout

    tables = jobs.tables(side)
    facts = {name: _facts(tables / name, column) for name, column in _SHOP_SUMS.items()}
    if DeltaTable(tables / "clean_orders").metadata().partition_columns != ["day"]:
        raise MeasurementError(f"{SHOP}: {side}: clean_orders is not partitioned by day")
    rejected = tables / "rejected_orders"
    if side == HEADRACE:
        rejected = Path(PipelineLayout.of(tables, "shop").quarantine_dir(1, "clean_orders"))
    facts["rejected_orders"] = _rows(rejected), 0.0
    amounts = [json.loads(value)["amount"] for value in _values(jobs.broker, _BIG_ORDERS[side])]
    facts["big-orders"] = len(amounts), round(sum(amounts), 2)
    if empty := [name for name, (rows, _) in facts.items() if not rows]:
        raise MeasurementError(f"{SHOP}: {side}: nothing in {', '.join(empty)}")
    return facts


def _visits_facts(path: Path) -> tuple[int, int]:
    """Rows, and how many different customers: each visit has one of its own."""
    customers = DeltaTable(path).to_pyarrow_table(columns=["customer"])["customer"]
    return len(customers), pc.count_distinct(customers).as_py()


def _facts(path: Path, column: str) -> tuple[int, float]:
    values = DeltaTable(path).to_pyarrow_table(columns=[column])[column]
    return len(values), round(pc.sum(values).as_py() or 0, 2)


def _rows(path: Path) -> int:
    return int(DeltaTable(path).to_pyarrow_table().num_rows)


def _values(broker: brokers.Broker, topic: str) -> list[bytes]:
    """All committed values of a topic."""
    settings = {"bootstrap.servers": broker.address, "group.id": STAGE, "enable.auto.commit": False}
    consumer = Consumer({**settings, "enable.partition.eof": True, "isolation.level": "read_committed"})
    values, ended = [], 0
    try:
        consumer.assign([TopicPartition(topic, each, OFFSET_BEGINNING) for each in range(brokers.PARTITIONS)])
        while ended < brokers.PARTITIONS:
            record = consumer.poll(_READ_S_MAX)
            if record is None:
                raise MeasurementError(f"{topic}: not read to its end within {_READ_S_MAX:g} s")
            if (error := record.error()) is None:
                values.append(record.value())
            elif error.code() == KafkaError._PARTITION_EOF:
                ended += 1
            else:
                raise MeasurementError(f"{topic}: {error.str()}")
    finally:
        consumer.close()
    return values


def _send_visits(broker: brokers.Broker, topic: str, first: int) -> None:
    producer = Producer({"bootstrap.servers": broker.address, "linger.ms": 20})
    for number in range(first, first + VISITS):
        visit = {"customer": f"c{number}", "page": f"/{number % PAGES}", "at": datetime.now(UTC).isoformat()}
        producer.produce(topic, json.dumps(visit))
    if producer.flush(30):
        raise MeasurementError(f"{topic}: not every visit was acknowledged")


def _send_shop(broker: brokers.Broker, count: int) -> None:
    """As the example sends them, with its own code."""
    spec = importlib.util.spec_from_file_location("shop_events", _SHOP_DIR / "events.py")
    if spec is None or spec.loader is None:
        raise MeasurementError("examples/shop/events.py cannot be loaded")
    events = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(events)
    wire.create_topics(broker.port, _SHOP_TOPICS, brokers.PARTITIONS)
    try:
        events.send(broker.address, count)
    except SystemExit as error:
        raise MeasurementError(str(error)) from error


def _spark_words() -> tuple[str, str]:
    from headrace.core.machine import memory_bytes
    from headrace.streaming.jars import ready_jars
    from headrace.streaming.java import find_java
    from headrace.streaming.settings import memory_default

    jars = ready_jars(find_java, say=lambda line: print(f"  {line}", flush=True))
    return ",".join(map(os.fspath, jars)), memory_default(memory_bytes())


def _java_home() -> str:
    """The Java that Headrace takes."""
    from headrace.streaming.java import find_java, java_home

    return java_home(find_java())
