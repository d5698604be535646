"""Kafka Streams' word count, exactly once: the counts are right, also when it is killed and started again."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest
from class_data import ClassData
from confluent_kafka import Producer
from java import KAFKA_VERSION, _alone, _cache, _call, missing_program
from memberships import consumer_of
from waits import WAIT_S_MAX, eventually

pytestmark = pytest.mark.xdist_group("java")

MakeTopic = Callable[..., str]
WORDS = ("log", "broker", "offset", "group", "commit", "segment", "epoch")
_SOURCE = Path(__file__).parent / "jvm" / "streams" / "WordCount.java"
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>headrace</groupId><artifactId>wire-tests-streams</artifactId><version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka-streams</artifactId><version>{version}</version>
    </dependency>
  </dependencies>
</project>
"""


@pytest.fixture(scope="session")
def class_path() -> str:
    """Kafka Streams' jars, fetched once as java.py fetches the others, and the program."""
    if (absent := missing_program()) is not None:
        pytest.skip(f"`{absent}` is not installed: Kafka Streams needs a JDK (java, javac) and mvn")
    cache = _cache()
    jars = cache / "jars-streams"
    classes = cache / f"streams-{hashlib.sha256(_SOURCE.read_bytes()).hexdigest()[:16]}.jar"
    with _alone(cache):
        if not jars.exists():
            with tempfile.TemporaryDirectory(dir=cache) as work:
                Path(work, "pom.xml").write_text(_POM.format(version=KAFKA_VERSION))
                copied = Path(work, "jars")
                _call("mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={copied}", cwd=work)
                copied.rename(jars)
        if not classes.exists():
            with tempfile.TemporaryDirectory(dir=cache) as work:
                compiled = Path(work, "classes")
                _call("javac", "-cp", f"{jars}/*", "-d", str(compiled), str(_SOURCE), cwd=work)
                Path(shutil.make_archive(f"{work}/packed", "zip", compiled)).rename(classes)
    return os.pathsep.join(map(str, [classes, *sorted(jars.glob("*.jar"))]))


def test_word_counts_are_right_also_after_it_was_killed_and_started_again(
    bootstrap: str, make_topic: MakeTopic, class_path: str, tmp_path: Path
) -> None:
    source, target = make_topic(partitions=2), make_topic(partitions=2)
    chance = random.Random(4)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    expected: dict[str, int] = defaultdict(int)
    counts: dict[str, list[int]] = defaultdict(list)

    def write(lines: int) -> None:
        for _ in range(lines):
            words = chance.choices(WORDS, k=4)
            for word in words:
                expected[word] += 1
            producer.produce(source, " ".join(words))
        assert producer.flush(WAIT_S_MAX) == 0

    class_data = ClassData(Path(class_path.split(os.pathsep)[0]).with_suffix(".jsa"))

    def start() -> subprocess.Popen[bytes]:
        quickly = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *class_data.flags, *class_data.leaving)
        where = (bootstrap, f"{source}-app", source, target, str(tmp_path / "state"))
        with (tmp_path / "streams.log").open("ab") as log:
            command = ["java", *quickly, "-cp", class_path, "WordCount", *where]
            return subprocess.Popen(command, stdout=log, stderr=log)

    with consumer_of(bootstrap, f"{source}-reader", isolation_level="read_committed") as consumer:
        consumer.subscribe([target])

        def counted(total: int) -> None:
            """Reads on until so many words are counted; a program that ended fails the test."""

            def enough() -> bool:
                for message in consumer.consume(500, timeout=0.2):
                    assert message.error() is None, message.error()
                    counts[message.key().decode()].append(int(message.value()))
                assert process.poll() is None, (tmp_path / "streams.log").read_text()[-4000:]
                return sum(map(len, counts.values())) >= total

            eventually(enough, f"{total} words counted")

        process = start()
        try:
            write(100)
            counted(200)
            # In the midst of its work.
            write(300)
            process.kill()
            process.wait()
            process = start()
            write(100)
            counted(2000)
        finally:
            class_data.end(process)
    assert {word: seen[-1] for word, seen in counts.items()} == expected
    assert counts == {word: list(range(1, count + 1)) for word, count in expected.items()}
