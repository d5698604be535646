"""Where `compare`, `apache-kafka` and Kafka's jars are. They are called there; nothing of them is copied."""

import importlib.util
import os
import subprocess
import sys
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

from processes import MeasurementError

REPOSITORY = Path(__file__).resolve().parent.parent
JARS_S_MAX = 1800


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedTools:
    compare_path: Path
    apache_kafka: Path
    jars: Path
    compare: ModuleType  # the script as a module, for its way to measure CPU, memory and the raw client

    def raw(self, port: int, mode: str, topic: str, *args: object) -> dict[str, float]:
        """One run of the raw client; what the modes take stands at the top of rawbench.c."""
        try:
            result: dict[str, float] = self.compare.raw("127.0.0.1", str(port), mode, topic, *args)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            raise MeasurementError(str(error)) from error
        return result

    def fill(self, port: int, topic: str, records_min: int) -> None:
        """At least so many 100-byte records in 16 KB batches, evenly over six partitions."""
        written = 0.0
        while written < records_min:
            written += self.raw(port, "produce", topic, 4, 5, 146, 6, 6, 1, 0.5)["records"]


def find() -> SharedTools:
    bench = Path(os.environ.get("HEADRACE_SHARED", REPOSITORY.parent / "shared")) / "bench"
    for name in ("compare", "apache-kafka", "rawbench.c"):
        if not (bench / name).is_file():
            raise SystemExit(
                f"bench: {name} is not in ../shared/bench; put the shared directory beside the repository, "
                "or set HEADRACE_SHARED to it"
            )
    version = os.environ.get("KAFKA_VERSION", "4.3.1")
    jars = os.environ.get("KAFKA_JARS", os.path.expanduser(f"~/.cache/apache-kafka-{version}"))
    return SharedTools(
        compare_path=bench / "compare",
        apache_kafka=bench / "apache-kafka",
        jars=Path(jars),
        compare=_module(bench / "compare"),
    )


def fetch_jars(tools: SharedTools) -> None:
    """Called without a command, `apache-kafka` fetches its jars if they are missing and shows its usage."""
    if not (tools.jars / ".complete").exists():
        print("bench: fetching Apache Kafka's jars, once", flush=True)
    subprocess.run([str(tools.apache_kafka)], capture_output=True, timeout=JARS_S_MAX, check=False)
    if not (tools.jars / ".complete").exists():
        raise SystemExit("bench: Apache Kafka's jars could not be fetched; mvn and a Maven repository are needed")


def _module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_loader("compare", SourceFileLoader("compare", str(path)))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # the shared directory is not ours
    try:
        spec.loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = before
    return module
