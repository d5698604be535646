import shlex
from pathlib import Path
from typing import Any

import pytest

from headrace.core.errors import OperatorError
from headrace.streaming.gateway import python_executable
from headrace.streaming.settings import SparkSettings, java_options, memory_default, spark_settings
from headrace.streaming.spark_log import FILES_MAX, log4j_properties, new_log_path


def made(settings: SparkSettings) -> dict[str, str]:
    return spark_settings(
        settings, jars=("/j/a.jar", "/j/b.jar"), scratch="/s", log4j_path="/s/l", machine_bytes=8 << 30
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"master": "locl[*]"}, "master: 'locl[*]' is not one; give local[*], local[4] or spark://HOST:PORT"),
        ({"master": "spark://host"}, "master: 'spark://host' has no host and port; give spark://HOST:PORT"),
        ({"driver_memory": "2 gigs"}, "driver_memory: '2 gigs' is not a size; give one such as 2g or 1536m"),
        ({"parallelism": 0}, "parallelism: 0 is below 1; give at least 1"),
        ({"ui_port": 70000}, "ui_port: 70000 is outside [0, 65535]"),
        ({"log_level": "loud"}, "log_level: 'loud' is none of error, warn, info, debug"),
    ],
)
def test_a_bad_setting_is_named_with_its_value(given: dict[str, Any], message: str) -> None:
    with pytest.raises(OperatorError) as error:
        SparkSettings(**given)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("master", "local", "cores", "masters"),
    [
        ("local", True, 1, ()),
        ("local[3]", True, 3, ()),
        ("local[2, 4]", True, 2, ()),
        ("spark://a:7077", False, None, (("a", 7077),)),
        ("spark://a:7077,b:7078", False, None, (("a", 7077), ("b", 7078))),
        ("spark://[::1]:7077", False, None, (("::1", 7077),)),
        ("yarn", False, None, ()),
    ],
)
def test_masters_are_told_apart(
    master: str, local: bool, cores: int | None, masters: tuple[tuple[str, int], ...]
) -> None:
    settings = SparkSettings(master=master)
    assert (settings.local, settings.cores, settings.masters) == (local, cores, masters)


def test_a_local_session_is_bound_to_loopback_and_shuffles_over_its_cores() -> None:
    values = made(SparkSettings(master="local[3]"))
    assert values["spark.driver.bindAddress"] == values["spark.driver.host"] == "127.0.0.1"
    assert values["spark.sql.shuffle.partitions"] == values["spark.databricks.delta.snapshotPartitions"] == "3"
    assert values["spark.jars"] == "/j/a.jar,/j/b.jar"


def test_on_a_cluster_spark_decides_addresses_and_partitions_unless_it_is_told() -> None:
    values = made(SparkSettings(master="spark://far.example:7077"))
    assert not {"spark.driver.host", "spark.driver.bindAddress", "spark.sql.shuffle.partitions"} & set(values)
    told = made(SparkSettings(master="spark://far.example:7077", driver_host="10.0.0.5", parallelism=16))
    assert (told["spark.driver.host"], told["spark.sql.shuffle.partitions"]) == ("10.0.0.5", "16")


@pytest.mark.parametrize("master", ["spark://127.0.0.1:7077", "spark://localhost:7077"])
def test_a_cluster_on_this_machine_is_reached_over_loopback(master: str) -> None:
    assert SparkSettings(master=master).address == "127.0.0.1"


def test_the_users_java_options_are_added_to_ours() -> None:
    options = made(SparkSettings(extra={"spark.driver.extraJavaOptions": "-Xss4m"}))["spark.driver.extraJavaOptions"]
    assert "log4j2.configurationFile" in options
    assert options.endswith(" -Xss4m")


def test_the_users_own_spark_settings_win() -> None:
    assert made(SparkSettings(extra={"spark.ui.enabled": "true"}))["spark.ui.enabled"] == "true"


@pytest.mark.parametrize(("machine_gb", "heap"), [(1, "1024m"), (8, "2048m"), (64, "4096m")])
def test_the_heap_is_a_quarter_of_the_machine_within_bounds(machine_gb: int, heap: str) -> None:
    assert memory_default(machine_gb << 30) == heap


def test_java_options_survive_a_path_with_spaces() -> None:
    assert shlex.split(java_options("/a b", "/a b/log4j2"))[:2] == [
        "-Dlog4j2.configurationFile=file:/a b/log4j2",
        "-Dderby.system.home=/a b",
    ]


def test_workers_run_this_python_here_and_the_users_on_a_cluster() -> None:
    import sys

    environ = {"PYSPARK_PYTHON": "/cluster/python"}
    assert python_executable(True, environ) == sys.executable
    assert python_executable(False, environ) == "/cluster/python"


def test_sparks_log_goes_to_a_file_and_nowhere_else() -> None:
    text = log4j_properties("/logs/spark.log", "warn")
    assert "appender.file.fileName = /logs/spark.log\n" in text
    assert "console" not in text.lower()


def test_old_logs_are_removed_and_new_ones_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path))
    (tmp_path / "logs").mkdir()
    for age in range(FILES_MAX + 5):
        file = tmp_path / "logs" / f"spark-{10_000_000 + age}.log"
        file.write_text("")
        os.utime(file, (1_000_000 - age, 1_000_000 - age))
    path = new_log_path()
    Path(path).write_text("")
    left = sorted(os.listdir(tmp_path / "logs"))
    assert len(left) == FILES_MAX
    assert "spark-10000000.log" in left
    assert f"spark-{10_000_000 + FILES_MAX}.log" not in left


def java_flags(settings: SparkSettings) -> list[str]:
    return shlex.split(made(settings)["spark.driver.extraJavaOptions"])


def test_a_short_run_is_compiled_quickly_and_a_long_one_well_but_later() -> None:
    assert "-XX:TieredStopAtLevel=1" in java_flags(SparkSettings(master="local[2]", short=True))
    long = java_flags(SparkSettings(master="local[2]"))
    assert "-XX:TieredStopAtLevel=1" not in long
    assert "-XX:Tier4BackEdgeThreshold=400000" in long


def test_few_cores_collect_without_threads_of_their_own_unless_the_user_has_chosen() -> None:
    assert "-XX:+UseSerialGC" in java_flags(SparkSettings(master="local[2]"))
    assert "-XX:+UseSerialGC" not in java_flags(SparkSettings(master="local[8]"))
    chosen = SparkSettings(master="local[2]", extra={"spark.driver.extraJavaOptions": "-XX:+UseG1GC"})
    assert [flag for flag in java_flags(chosen) if flag.endswith("GC")] == ["-XX:+UseG1GC"]


def test_a_clusters_driver_is_left_as_spark_starts_it() -> None:
    assert not any(flag.startswith("-XX") for flag in java_flags(SparkSettings(master="spark://a:7077", short=True)))


def test_jars_on_the_class_path_are_not_handed_out_as_well() -> None:
    values = spark_settings(SparkSettings(), jars=(), scratch="/s", log4j_path="/s/l", machine_bytes=8 << 30)
    assert "spark.jars" not in values
