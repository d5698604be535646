"""What a user can say about Spark, and what it becomes in Spark's own settings. Nothing here starts anything."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.core.errors import OperatorError
from headrace.streaming.s3 import s3_settings

LOOPBACK = "127.0.0.1"
LOG_LEVELS = ("error", "warn", "info", "debug")
STOP_TIMEOUT = "30s"
CALL_SITES = "spark.python.sql.dataFrameDebugging.enabled"
_LOCAL = re.compile(r"local(\[(\*|\d+)(\s*,\s*\d+)?\])?$")
_MASTERS = ("spark://", "yarn", "k8s://", "local-cluster[")
_STANDALONE = re.compile(r"spark://[^,:/]+:\d{1,5}(,[^,:/]+:\d{1,5})*$|spark://\[[0-9a-fA-F:]+\]:\d{1,5}$")
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_MEMORY = re.compile(r"\d+[kmgtKMGT]?$")
_COLLECTOR = re.compile(r"-XX:\+Use\w*GC\b")
_FEW_CORES = 2  # where a collector that works beside the program takes its cores away
_LATER = 10  # times as many calls and turns before the second compiler takes on a method
_SECOND_COMPILER = {  # Java's own thresholds
    "Tier4InvocationThreshold": 5000,
    "Tier4MinInvocationThreshold": 600,
    "Tier4CompileThreshold": 15000,
    "Tier4BackEdgeThreshold": 40000,
}
_LOCAL_MEMORY_MB = (1024, 4096)  # bounds of the default: a quarter of the machine's


@dataclass(frozen=True, kw_only=True)
class SparkSettings:
    master: str = field(default="local[*]", metadata={"help": "Where Spark runs: local[*], or spark://HOST:PORT."})
    app_name: str = field(default="headrace", metadata={"help": "What the session is called in Spark's own pages."})
    driver_memory: str | None = field(
        default=None, metadata={"help": "Heap of the driver, such as 2g.  [default: a quarter of the memory, 1-4g]"}
    )
    driver_host: str | None = field(
        default=None,
        metadata={"help": "Address at which a cluster's executors reach this driver.  [default: loopback, if it can]"},
    )
    parallelism: int | None = field(
        default=None, metadata={"help": "Partitions of a shuffle.  [default: the cores; on a cluster Spark's own]"}
    )
    time_zone: str = field(default="UTC", metadata={"help": "Time zone in which SQL reads and shows times."})
    ui_port: int | None = field(
        default=None, metadata={"help": "Serve Spark's own pages on this port.  [default: off]"}
    )
    log_path: str | None = field(
        default=None, metadata={"help": "File for Spark's log.  [default: one per process in the cache directory]"}
    )
    log_level: str = field(default="warn", metadata={"help": "What Spark logs: error, warn, info or debug."})
    scratch: str | None = field(
        default=None, metadata={"help": "Where Spark keeps shuffles and state while it runs.  [default: TMPDIR]"}
    )
    short: bool = field(
        default=False,
        metadata={"help": "Compile quickly rather than well: a run over little data ends sooner."},
    )
    s3: bool = field(default=False, metadata={"help": "Reach s3:// too; a pipeline whose tables lie there sets it."})
    extra: Mapping[str, str] = field(
        default_factory=dict,
        metadata={"help": "Any of Spark's own settings; they win over ours."},
    )

    def __post_init__(self) -> None:
        if not _LOCAL.match(self.master) and not self.master.startswith(_MASTERS):
            raise OperatorError(f"master: {self.master!r} is not one; give local[*], local[4] or spark://HOST:PORT")
        if self.master.startswith("spark://") and not _STANDALONE.match(self.master):
            raise OperatorError(f"master: {self.master!r} has no host and port; give spark://HOST:PORT")
        if self.driver_memory is not None and not _MEMORY.match(self.driver_memory):
            raise OperatorError(f"driver_memory: {self.driver_memory!r} is not a size; give one such as 2g or 1536m")
        if self.parallelism is not None and self.parallelism < 1:
            raise OperatorError(f"parallelism: {self.parallelism} is below 1; give at least 1")
        if self.ui_port is not None and not 0 <= self.ui_port <= 65535:
            raise OperatorError(f"ui_port: {self.ui_port} is outside [0, 65535]")
        if self.log_level not in LOG_LEVELS:
            raise OperatorError(f"log_level: {self.log_level!r} is none of {', '.join(LOG_LEVELS)}")

    @property
    def local(self) -> bool:
        """Whether driver and executors are one process on this machine."""
        return _LOCAL.match(self.master) is not None

    @property
    def cores(self) -> int | None:
        """How many tasks run at once; None on a cluster, which alone knows."""
        match = _LOCAL.match(self.master)
        if match is None:
            return None
        given = match.group(2)
        return len(os.sched_getaffinity(0)) if given == "*" else int(given or 1)

    @property
    def masters(self) -> tuple[tuple[str, int], ...]:
        """Host and port of each standalone master; none when Spark runs here, or on another kind of cluster."""
        if not self.master.startswith("spark://"):
            return ()
        places = (place.rpartition(":") for place in self.master.removeprefix("spark://").split(","))
        return tuple((host.strip("[]"), int(port)) for host, _, port in places)

    @property
    def address(self) -> str | None:
        """The address of the driver: loopback unless executors elsewhere must reach it."""
        if self.driver_host is not None:
            return self.driver_host
        near = re.match(r"spark://(127\.|localhost[:,]|\[::1\])", self.master)
        return LOOPBACK if self.local or near or self.master.startswith("local-cluster[") else None


def memory_default(machine_bytes: int) -> str:
    low, high = _LOCAL_MEMORY_MB
    return f"{max(low, min(high, (machine_bytes >> 20) // 4))}m"


def spark_settings(
    settings: SparkSettings, *, jars: tuple[str, ...], scratch: str, log4j_path: str, machine_bytes: int
) -> dict[str, str]:
    """Spark's own settings, by their names there. `jars` are those that are not on the class path already."""
    values = {
        "spark.master": settings.master,
        "spark.app.name": settings.app_name,
        "spark.submit.deployMode": "client",
        "spark.driver.memory": settings.driver_memory or memory_default(machine_bytes),
        _JAVA_OPTIONS: java_options(scratch, log4j_path),
        "spark.local.dir": scratch,
        "spark.sql.warehouse.dir": os.path.join(scratch, "warehouse"),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.session.timeZone": settings.time_zone,
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
        # State is uploaded as what changed, not as whole snapshots: a batch's commit is quicker.
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.streaming.stopTimeout": STOP_TIMEOUT,
        # By default Hadoop's FileContext renames each small file of a checkpoint and of a Delta log, and for that runs
        # `readlink` eight times, each time in a process of its own. These two rename as safely, and start none.
        "spark.sql.streaming.checkpointFileManagerClass": (
            "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
        ),
        "spark.delta.logStore.file.impl": "io.delta.storage.LocalLogStore",
        # Telling the JVM from which line each column was made costs several calls per column. `check` finds the line.
        CALL_SITES: "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.ui.enabled": "false" if settings.ui_port is None else "true",
    }
    if settings.local:
        values["spark.python.daemon.module"] = "headrace.streaming.worker_daemon"
    if jars:
        values["spark.jars"] = ",".join(jars)
    if settings.s3:
        values |= s3_settings(os.environ)
    if settings.ui_port is not None:
        values["spark.ui.port"] = str(settings.ui_port)
    if (partitions := settings.parallelism or settings.cores) is not None:
        values["spark.sql.shuffle.partitions"] = str(partitions)
        values["spark.databricks.delta.snapshotPartitions"] = str(partitions)
    if (address := settings.address) is not None:
        values["spark.driver.host"] = address
        values["spark.driver.bindAddress"] = address
    extra = dict(settings.extra)
    options = extra.pop(_JAVA_OPTIONS, "")  # beside ours, which keep the screen quiet; the last of two counts
    values[_JAVA_OPTIONS] = " ".join(filter(None, [values[_JAVA_OPTIONS], *tuning(settings, options), options]))
    return values | extra


def tuning(settings: SparkSettings, given: str) -> list[str]:
    """How the JVM compiles and collects on this machine. Measured on two cores, over a first run of the shop example:
    the second compiler took half of all CPU time for code that was over before it was ready."""
    if not settings.local:
        return []
    if settings.short:
        options = ["-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m"]
    else:
        options = [f"-XX:{name}={count * _LATER}" for name, count in _SECOND_COMPILER.items()]
    # Java's own first limit, 21 MB, is reached by loading classes, again and again: each time all memory is collected.
    options.append("-XX:MetaspaceSize=256m")
    cores = settings.cores or 0
    if cores <= _FEW_CORES and not _COLLECTOR.search(given):  # Java refuses two collectors
        options.append("-XX:+UseSerialGC")
    return options


def java_options(scratch: str, log4j_path: str) -> str:
    """Quoted for Spark's launcher, which splits them as a shell does."""
    options = {
        "log4j2.configurationFile": f"file:{log4j_path}",
        "derby.system.home": scratch,
        "java.io.tmpdir": scratch,
    }
    return " ".join(f'"-D{key}={value}"' for key, value in options.items())
