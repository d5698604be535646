"""What to do about a query that failed: try again after a while, or stop it and say why. Pure: no clock, no Spark.

A broker that is away, a lost connection, a writer that got in between: these pass, and the query is started again with
growing waits. Code, data and schemas do not fix themselves: there the node stops, and a person reads one line.
"""

import re
from dataclasses import dataclass
from typing import Literal

from headrace.streaming.expectations import FAILED_MARK
from headrace.streaming.keyed.order import PARTITIONS_MARK, SEVERAL_MARK
from headrace.streaming.spark_errors import wrong_name

Kind = Literal["expectation", "data loss", "schema", "code", "transient", "unknown"]
UNKNOWN_RESTARTS_MAX = 3
MESSAGE_CHARS_MAX = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    kind: Kind
    message: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long to go on trying."""

    restarts_max: int
    backoff_s_min: float
    backoff_s_max: float


# What our own expressions raise, found again in Spark's words.
_MARKS: dict[str, tuple[Kind, str, str]] = {
    FAILED_MARK: (
        "expectation",
        "expectation failed: ",
        "nothing of the batch was written; fix the data or the expectation, then run again",
    ),
    SEVERAL_MARK: (
        "code",
        "several rows of one key, and nothing tells which is the last: ",
        "add order_by= or columns to key= of the table, or return _topic, _partition and _offset",
    ),
    PARTITIONS_MARK: (
        "code",
        "a key comes from several partitions (its records have no key, or partitions were added to the topic), between "
        "which the log has no order: ",
        "send records with their key, or add order_by= to the table, such as order_by='_timestamp'",
    ),
}
# Looked for in this order in all that Spark says; the first that is found decides.
_STOPPING: tuple[tuple[str, Kind, str], ...] = (
    (
        r"KAFKA_DATA_LOSS|failOnDataLoss|data may have been lost|OffsetOutOfRange|offset.{0,40} was changed from",
        "data loss",
        "the log no longer has what comes next, and nothing is skipped silently; "
        "replay the pipeline from what the log still has, and raise retention.ms",
    ),
    (
        r"UnknownTopicOrPartition|UNKNOWN_TOPIC_OR_PART|topic.{0,60} does not exist|have gone|are gone",
        "data loss",
        "create the topic again, or replay the pipeline without it",
    ),
    (
        r"DELTA_SOURCE_TABLE_IGNORE_CHANGES|DELTA_SOURCE_IGNORE_DELETE",
        "schema",
        "rows of the table it reads were changed or removed; read it with hr.stream(..., ignore_changes=True) "
        "or change_feed=True",
    ),
    (
        r"DELTA_SCHEMA|DELTA_FAILED_TO_MERGE|DELTA_MERGE_INCOMPATIBLE|DELTA_METADATA_MISMATCH|schema mismatch"
        r"|DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE",
        "schema",
        "the schema changed; replay the pipeline, or declare the table with evolve=True",
    ),
    (
        r"STATE_STORE.{0,60}SCHEMA|STATE_STORE_(KEY|VALUE)|incompatible with the existing|"
        r"STREAMING_STATEFUL_OPERATOR_NOT_MATCH|checkpoint.{0,80}incompatible",
        "code",
        "the code does not fit the state that its checkpoint holds; replay the pipeline",
    ),
    (
        r"AnalysisException|UNRESOLVED_COLUMN|PARSE_SYNTAX_ERROR",
        "code",
        "fix the function",
    ),
    (
        r"CAST_INVALID_INPUT|DIVIDE_BY_ZERO|ARITHMETIC_OVERFLOW|INVALID_ARRAY_INDEX|NUMERIC_VALUE_OUT_OF_RANGE",
        "code",
        "a row does not fit the function; use the try_ form, or quarantine such rows before",
    ),
)
_TRANSIENT = re.compile(
    r"TimeoutException|timed out|TIMED_OUT|DisconnectException|Connection refused|Connection reset|_TRANSPORT"
    r"|ALL_BROKERS_DOWN|BrokerNotAvailable|NotLeaderOrFollower|LeaderNotAvailable|COORDINATOR|NetworkException"
    r"|CONCURRENT|Concurrent\w*Exception|FENCED|java\.io\.IOException|SocketException|UnknownHost|ExecutorLost"
    r"|RetriableException|No resolvable bootstrap|TopicTaskError|its rows ended before|ERR__STATE|KafkaException"
    r"|KafkaError|Broken pipe|EOFException",
    re.IGNORECASE,
)


def classify(text: str) -> Failure:
    """`text` is all that is known of the failure: Spark's message, its causes, the Python error."""
    for mark, (kind, what, remedy) in _MARKS.items():
        if mark in text:
            said = text.split(mark, 1)[1].splitlines()[0]
            return Failure(kind=kind, message=_short(what + said), remedy=remedy)
    raised = _raised_in_worker(text)
    if raised is not None:
        return Failure(kind="code", message=_short(raised), remedy="fix the function")
    for pattern, stopping, remedy in _STOPPING:
        if re.search(pattern, text, re.IGNORECASE | re.DOTALL):
            said = wrong_name(text) or _telling(text, pattern)
            return Failure(kind=stopping, message=_short(said), remedy=remedy)
    if _TRANSIENT.search(text):
        return Failure(kind="transient", message=_short(_telling(text, _TRANSIENT.pattern)), remedy="")
    return Failure(kind="unknown", message=_short(_telling(text, "")), remedy="look into Spark's log")


def wait_s(failure: Failure, restarts: int, patience: Patience) -> float | None:
    """How long to wait before restart number `restarts` + 1; None to stop."""
    if failure.kind not in ("transient", "unknown"):
        return None
    limit = patience.restarts_max if failure.kind == "transient" else min(patience.restarts_max, UNKNOWN_RESTARTS_MAX)
    if restarts >= limit:
        return None
    return float(min(patience.backoff_s_max, patience.backoff_s_min * 2**restarts))


_FROM_WORKER = re.compile(r"from the Python worker: Traceback .*\n(?P<frames>(?:[ \t].*\n)*)(?P<said>\S.*)")
_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')
# Frames of others: what the user called, not what the user wrote.
_INSTALLED = re.compile(r"[/\\](site-packages|dist-packages|pyspark|lib[/\\]python[\d.]+)[/\\]|^<")
_OWN_TASK = re.compile(r"headrace[/\\]streaming[/\\]topic_task\.py")


def _raised_in_worker(text: str) -> str | None:
    """What the user's function raised in a Python worker, with its line; None where it was not the user's."""
    found = _FROM_WORKER.search(text)
    if found is None or _OWN_TASK.search(found["frames"]):
        return None
    frames = [each for each in _FRAME.finditer(found["frames"]) if not _INSTALLED.search(each["file"])]
    return f"{frames[-1]['file']}:{frames[-1]['line']}: {found['said']}" if frames else found["said"]


_NOISE = re.compile(r"^\s*(at |\.\.\. \d+ more|=== |Caused by: java\.lang\.RuntimeException: null$|File \"|Traceback)")


def _telling(text: str, pattern: str) -> str:
    """The line that says most: the first with the pattern in it, else the first that is no stack trace."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not _NOISE.match(line)]
    if pattern:
        for line in lines:
            if re.search(pattern, line, re.IGNORECASE):
                return line
    return lines[0] if lines else text


def _short(text: str) -> str:
    text = re.sub(r" SQLSTATE: \w+", "", " ".join(text.split()))
    return text if len(text) <= MESSAGE_CHARS_MAX else text[: MESSAGE_CHARS_MAX - 1] + "…"
