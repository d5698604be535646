"""`kafka-storage.sh`: directories formatted with a cluster id, and what is said of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tool_process import Running, ok, run

NAME = "kafka-storage.sh"
CLUSTER = "F-P_HBevRJqh0a2j-zD0kw"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """As Kafka's own, for two disks."""
    file = tmp_path / "server.properties"
    file.write_text(
        "process.roles=broker,controller\nnode.id=5\ncontroller.quorum.bootstrap.servers=localhost:9093\n"
        "listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0\ncontroller.listener.names=CONTROLLER\n"
        f"log.dirs={tmp_path}/a,{tmp_path}/b\n"
    )
    return file


def test_a_random_id_has_kafkas_form() -> None:
    first, second = (ok(NAME, "random-uuid").out for _ in range(2))
    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]{21}\n", first)
    assert first != second


def test_a_formatted_directory_gives_the_broker_its_cluster_id(file: Path, tmp_path: Path) -> None:
    made = ok(NAME, "format", "--standalone", "-t", CLUSTER, "-c", file)
    assert made.lines == [
        f"Formatting data directory {tmp_path}/{name} with cluster.id {CLUSTER}." for name in ("a", "b")
    ]
    with Running("kafka-server-start.sh", file) as broker:
        broker.read_until(" listens on ")
        (address,) = re.findall(r"listens on (\S+)", broker.out)
        assert CLUSTER in ok("headrace", "cluster", "-b", address, "--json").out
        locked = run(NAME, "format", "-g", "-t", CLUSTER, "-c", file)
        assert locked.exit == 1
        assert "another process has this directory locked" in locked.err
        assert broker.end() == 0


def test_formatting_twice_is_refused_unless_it_may_be_formatted(file: Path, tmp_path: Path) -> None:
    ok(NAME, "format", "-t", CLUSTER, "-c", file)
    again = run(NAME, "format", "-t", CLUSTER, "-c", file)
    assert again.exit == 1
    assert again.err == (
        f"Log directory {tmp_path}/a is already formatted. Use --ignore-formatted to ignore this directory and format "
        "the others.\n"
    )
    ignored = ok(NAME, "format", "--ignore-formatted", "-t", CLUSTER, "-c", file)
    assert ignored.out == "All of the log directories are already formatted.\n"
    (tmp_path / "b" / "meta.properties").unlink()
    assert ok(NAME, "format", "-g", "-t", CLUSTER, "-c", file).lines == [
        f"Formatting data directory {tmp_path}/b with cluster.id {CLUSTER}."
    ]


def test_another_cluster_id_changes_nothing(file: Path, tmp_path: Path) -> None:
    ok(NAME, "format", "-t", CLUSTER, "-c", file)
    (tmp_path / "a" / "meta.properties").unlink()
    other = run(NAME, "format", "-g", "-t", "another", "-c", file)
    assert other.exit == 1
    assert other.err.startswith(f"Invalid cluster.id in: {tmp_path}/b/meta.properties. Expected another, but read ")
    assert not (tmp_path / "a" / "meta.properties").exists()


def test_what_formatting_cannot_do_is_a_warning(file: Path) -> None:
    made = ok(NAME, "format", "-t", CLUSTER, "-c", file, "-S", "SCRAM-SHA-256=[name=a,password=b]", "-I", "1@h:1:x")
    assert [line.partition(" has no effect: ")[0] for line in made.err.splitlines()] == [
        "headrace: warning: --initial-controllers",
        "headrace: warning: --add-scram",
    ]


def test_info_says_what_kafkas_says(file: Path, tmp_path: Path) -> None:
    before = run(NAME, "info", "-c", file)
    assert (before.exit, before.err) == (1, "")
    assert before.out == f"Found problems:\n  {tmp_path}/a does not exist\n  {tmp_path}/b does not exist\n\n"
    ok(NAME, "format", "-t", CLUSTER, "-c", file)
    after = ok(NAME, "info", "-c", file).out
    assert re.sub(r"directory\.id=\S{22}", "directory.id=…", after) == (
        f"Found log directories:\n  {tmp_path}/a\n  {tmp_path}/b\n\n"
        f"Found metadata: {{cluster.id={CLUSTER}, directory.id=…, node.id=5, version=1}}\n\n"
    )
    meta = tmp_path / "b" / "meta.properties"
    meta.write_text(meta.read_text().replace("node.id=5", "node.id=6"))
    assert "Found problem:\n  Mismatched node IDs between storage directories.\n" in run(NAME, "info", "-c", file).out
    meta.write_text("nonsense")
    assert f"Found problem:\n  Error loading {meta}: " in run(NAME, "info", "-c", file).out
    meta.unlink()
    assert f"Found problem:\n  {tmp_path}/b is not formatted.\n" in run(NAME, "info", "-c", file).out


def test_the_features_are_the_brokers() -> None:
    assert ok(NAME, "version-mapping").lines == ["transaction.version=2", "group.version=1"]
    looked_up = ok(NAME, "feature-dependencies", "-f", "group.version=1", "--feature", "transaction.version=2")
    assert looked_up.lines == ["group.version=1 has no dependencies.", "transaction.version=2 has no dependencies."]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("shred",), "Invalid choice: shred"),
        (("format", "info"), "Name one command of "),
        (("format", "-t", CLUSTER), "Missing required argument --config"),
        (("format", "-c", "FILE"), "Missing required argument --cluster-id"),
        (("format", "-c", "FILE", "-t", "two words"), "--cluster-id 'two words': write letters"),
        (("format", "-c", "FILE", "-t", CLUSTER, "-s", "-N"), "exclude each other"),
        (("format", "-c", "none", "-t", CLUSTER), "none: no such file or directory"),
        (("info", "-c", "none"), "none: no such file or directory"),
        (("info", "-c", "BAD"), "num.partitions=many is not a whole number"),
        (("info", "-t", CLUSTER), "The command info has no option --cluster-id"),
        (("random-uuid", "more"), "Name one command of "),
        (("version-mapping", "-r", "3.9"), "no metadata.version"),
        (("feature-dependencies",), "Missing required argument --feature"),
        (("feature-dependencies", "-f", "metadata.version=1"), "Unknown feature: metadata.version"),
        (
            ("feature-dependencies", "-f", "group.version=2"),
            "Feature level 2 is not supported for feature group.version",
        ),
        (("feature-dependencies", "-f", "group.version"), "Invalid feature format: group.version"),
        (("feature-dependencies", "-f", "group.version=x"), "Invalid version format: x for feature group.version"),
    ],
)
def test_what_is_wrong_is_one_line(args: tuple[str, ...], said: str, file: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.properties"
    bad.write_text("num.partitions=many")
    ran = run(NAME, *({"FILE": file, "BAD": bad}.get(arg, arg) for arg in args))
    assert (ran.exit, ran.out, ran.err.count("\n")) == (1, "", 1)
    assert said in ran.err
