"""What a run of a pipeline can be told. Made by the command line, or by a program."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.core.errors import OperatorError
from headrace.streaming.settings import SparkSettings
from headrace.streaming.starting import Starting
from headrace.tables.layout import TABLES_DIR_DEFAULT, TABLES_DIR_VARIABLE

BOOTSTRAP_DEFAULT = "127.0.0.1:9092"
BOOTSTRAP_VARIABLE = "HEADRACE_BOOTSTRAP"


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    tables_dir: str = field(
        default_factory=lambda: os.environ.get(TABLES_DIR_VARIABLE, TABLES_DIR_DEFAULT),
        metadata={"help": "Directory of tables, checkpoints and quarantine, or s3://BUCKET/PREFIX."},
    )
    bootstrap: str = field(
        default_factory=lambda: os.environ.get(BOOTSTRAP_VARIABLE, BOOTSTRAP_DEFAULT),
        metadata={"help": "The broker or brokers, HOST:PORT."},
    )
    once: bool = field(default=False, metadata={"help": "Process the records that are there now, then end."})
    only: tuple[str, ...] = field(default=(), metadata={"help": "The nodes that run; none means all."})
    starting: Starting | None = field(
        default=None, metadata={"help": "Where new checkpoints begin, instead of what the file says."}
    )
    kafka: Mapping[str, str] = field(
        default_factory=dict,
        metadata={"help": "Kafka settings of every topic, such as kafka.sasl.mechanism."},
    )
    spark: SparkSettings = field(default_factory=SparkSettings)
    restarts_max: int = field(
        default=10, metadata={"help": "Restarts of a node in a row, without a completed batch in between."}
    )
    backoff_s_min: float = field(
        default=1.0, metadata={"help": "Wait before the first restart; doubled for each further one."}
    )
    backoff_s_max: float = field(default=30.0, metadata={"help": "The longest wait before a restart."})
    progress_s: float = field(default=0.5, metadata={"help": "Time between two looks at the state of the nodes."})
    metrics_port: int | None = field(
        default=None, metadata={"help": "Port of /metrics and /health; 0 takes a free one, None serves none."}
    )
    metrics_host: str = field(default="127.0.0.1", metadata={"help": "Address of that port."})
    lineage: str | None = field(
        default=None, metadata={"help": "File or URL that gets an OpenLineage event as each node goes on."}
    )
    transaction_options: bool = field(
        default=True, metadata={"help": "Off only in tests, to show that they fail without."}
    )

    def __post_init__(self) -> None:
        if not self.bootstrap.strip():
            raise OperatorError("bootstrap: empty; give HOST:PORT of a broker")
        if self.restarts_max < 0:
            raise OperatorError(f"restarts_max: {self.restarts_max} is below 0")
        if not 0 < self.backoff_s_min <= self.backoff_s_max:
            raise OperatorError(f"backoff_s_min: {self.backoff_s_min:g} is outside (0, {self.backoff_s_max:g}]")
