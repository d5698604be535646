"""A real Apache ZooKeeper from Maven's jars, fetched once into the user's cache directory, to compare with."""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ports import reserved_port
from waits import eventually

VERSION = "3.9.3"
_FETCH_S_MAX = 600.0
_DEPENDENCIES = (
    ("org.apache.zookeeper", "zookeeper", VERSION),
    ("io.dropwizard.metrics", "metrics-core", "4.2.19"),
    ("org.xerial.snappy", "snappy-java", "1.1.10.5"),
)


def missing_program() -> str | None:
    return next((name for name in ("java", "mvn") if shutil.which(name) is None), None)


def _jars() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    cache = Path(home) / "headrace" / f"zookeeper-{VERSION}"
    cache.mkdir(parents=True, exist_ok=True)
    jars = cache / "jars"
    with open(cache / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not jars.exists():
            _fetch(cache, jars)
    return jars


def _fetch(cache: Path, jars: Path) -> None:
    wanted = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version></dependency>"
        for group, name, version in _DEPENDENCIES
    )
    with tempfile.TemporaryDirectory(dir=cache) as work:
        Path(work, "pom.xml").write_text(
            '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>headrace</groupId>'
            f"<artifactId>keeper-tests</artifactId><version>1</version><dependencies>{wanted}</dependencies></project>"
        )
        command = ["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={work}/jars"]
        subprocess.run(command, cwd=work, check=True, capture_output=True, timeout=_FETCH_S_MAX)
        Path(work, "jars").rename(jars)  # at once, so that what is there is whole


@contextmanager
def running(directory: Path) -> Iterator[int]:
    """The port of a standalone server with fresh data, or with the data that lies there."""
    directory.mkdir(parents=True, exist_ok=True)
    with reserved_port() as port:
        config = directory / "zoo.cfg"
        config.write_text(
            f"dataDir={directory}/data\nclientPort={port}\nclientPortAddress=127.0.0.1\ntickTime=3000\n"
            "maxClientCnxns=0\n4lw.commands.whitelist=*\nadmin.enableServer=false\n"
        )
        quickly = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
        command = ["java", *quickly, "-Dzookeeper.extendedTypesEnabled=true", "-cp", f"{_jars()}/*"]
        command += ["org.apache.zookeeper.server.ZooKeeperServerMain", str(config)]
        with open(directory / "out", "wb") as out, subprocess.Popen(command, stdout=out, stderr=out) as process:
            try:
                eventually(lambda: _serves(process, port), "ZooKeeper serves")
                yield port
            finally:
                process.kill()


def _serves(process: subprocess.Popen[bytes], port: int) -> bool:
    assert process.poll() is None, "ZooKeeper has ended"
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=10) as sock:
            sock.sendall(b"srvr")
            return b"Mode: standalone" in sock.recv(4096)
    except OSError:
        return False
