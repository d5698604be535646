"""What lets Spark's JVM start quickly on this machine: hard links to its jars, its module options, a class archive.

They are made once per Java and set of jars and lie in the cache directory. The archive is what the JVM of a first run
leaves as it ends, or that of a training run:

    <cache>/spark-start/<key>/jars/      hard links to the jars, so that every virtual environment shares one archive
    <cache>/spark-start/<key>/start.json the module options that Spark's launcher would add
    <cache>/spark-start/<key>/classes.jsa the classes of that run as a JVM maps them into memory (AppCDS)
    <cache>/spark-start/<key>/leaving    a file that the one JVM which will leave an archive holds a lock on
    <cache>/spark-start/<key>/used       a file that every process with such a JVM holds a lock on: nobody removes it

The JVM itself checks that an archive fits it and its class path, and ignores one that does not. Whatever is missing
here costs time and nothing else: the session then starts through Spark's own launcher.
"""

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import TextIO

from headrace.core.cache_directory import cache_directory
from headrace.streaming.cache import made, replacing
from headrace.streaming.java import VECTOR_MODULE, Java

FORMAT = 1  # part of the key: a change of what lies in a directory makes a new one
KEPT_MAX = 3  # directories; an archive takes about 200 MB
OFF_VARIABLE = "HEADRACE_CLASS_ARCHIVE"
_ARCHIVE, _OPTIONS, _JARS, _USED = "classes.jsa", "start.json", "jars", "used"
_LEAVING, _LEFT = "leaving", "left.jsa"
_MAGIC_BYTES = 4
# What a user may have configured for Spark's launcher; then it is the launcher that starts the JVM.
_LAUNCHER_VARIABLES = ("SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_DIST_CLASSPATH", "SPARK_ENV_LOADED")
_LAUNCHER_SETTINGS = ("spark.driver.extraLibraryPath", "spark.driver.defaultJavaOptions")


@dataclass(frozen=True, kw_only=True)
class QuickStart:
    """A JVM that can be started without Spark's launcher."""

    java: str
    class_path: tuple[str, ...]
    options: tuple[str, ...]
    archive: str | None
    used: str  # the file to lock
    leaves: str | None = None  # where this JVM is to leave an archive as it ends

    def hold(self) -> TextIO:
        """While the file that it returns is open, the jars stay where they are: a JVM opens them for as long as it
        runs. The kernel lets go when the process ends."""
        file = open(self.used, "a")  # noqa: SIM115
        fcntl.flock(file, fcntl.LOCK_SH)
        return file

    def command(self, settings: Mapping[str, str], java_options: Sequence[str]) -> list[str]:
        """The JVM that waits for pyspark, with the settings as spark-submit takes them."""
        classes = [*self.class_path, *filter(None, [settings.get("spark.driver.extraClassPath")])]
        # A JVM that ignores an archive says so on stdout, which is the user's; stderr is Spark's log.
        quiet = ["-Xlog:disable", "-Xlog:all=error:stderr"]
        archive = [f"-XX:SharedArchiveFile={self.archive}", "-Xshare:auto"] if self.archive else []
        if self.leaves:
            archive += ["-XX:+IgnoreUnrecognizedVMOptions", f"-XX:ArchiveClassesAtExit={self.leaves}"]
        heap = f"-Xmx{settings['spark.driver.memory']}"
        words = [self.java, "-cp", os.pathsep.join(classes), heap, *quiet, *archive, *self.options, *java_options]
        words.append("org.apache.spark.deploy.SparkSubmit")
        for key, value in settings.items():
            words += ["--conf", f"{key}={value}"]
        return [*words, "pyspark-shell"]


def fits(settings: Mapping[str, str], environ: Mapping[str, str] = os.environ) -> bool:
    """Whether nothing but the settings says how the JVM is to start."""
    configured = [name for name in _LAUNCHER_VARIABLES if environ.get(name)]
    return not configured and not any(key in settings for key in _LAUNCHER_SETTINGS)


def spark_home() -> str:
    """The directory of pyspark, without importing it."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("pyspark")
    return os.path.dirname(spec.origin)


def spark_jars(home: str) -> list[str]:
    directory = os.path.join(home, "jars")
    return sorted(os.path.join(directory, name) for name in os.listdir(directory) if name.endswith(".jar"))


class QuickStarts:
    """The directory of one Java and one set of jars."""

    def __init__(self, java: Java, jars: Sequence[str], environ: Mapping[str, str] = os.environ) -> None:
        self._java = java
        self._sources = [*spark_jars(spark_home()), *jars]
        self._off = environ.get(OFF_VARIABLE) == "0"
        self._root = os.path.join(cache_directory(environ), "spark-start")
        self.path = os.path.join(self._root, _key(java, self._sources))

    @property
    def wanted(self) -> bool:
        return not self._off

    def found(self, more_jars: Sequence[str] = ()) -> QuickStart | None:
        """None when there is none yet, or it is not wanted. `more_jars` come last, where an archive allows them."""
        options = self._read_options()
        if self._off or options is None:
            return None
        archive = os.path.join(self.path, _ARCHIVE)
        self._adopt(archive)
        with suppress(OSError):
            os.utime(self.path)  # the ones not used for longest go first
        return QuickStart(
            java=os.path.join(self._java.home, "bin", "java"),
            class_path=(*self._linked(), *more_jars),
            options=tuple(self._runnable(options)),
            archive=archive if os.path.isfile(archive) else None,
            used=os.path.join(self.path, _USED),
        )

    def leaving(self, quick: QuickStart) -> tuple[QuickStart, TextIO] | None:
        """The same start with a JVM that leaves an archive as it ends, and a lock to hand on to that JVM: it is held
        until the JVM is gone, which may be long after this process. None when another JVM is to leave one."""
        lock = self._leaving_lock()
        if lock is None:
            return None
        left = os.path.join(self.path, _LEFT)
        with suppress(FileNotFoundError):
            os.unlink(left)
        return replace(quick, leaves=left), lock

    def _leaving_lock(self) -> TextIO | None:
        try:
            file = open(os.path.join(self.path, _LEAVING), "a")  # noqa: SIM115
        except OSError:
            return None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            return None
        return file

    def _adopt(self, archive: str) -> None:
        """Takes what a JVM has left. Its header is written last, so that one which was killed meanwhile has none."""
        left = os.path.join(self.path, _LEFT)
        if os.path.exists(archive) or not os.path.exists(left):
            return
        lock = self._leaving_lock()
        if lock is None:  # it is being written
            return
        with lock, suppress(OSError):
            with open(left, "rb") as file:
                whole = any(file.read(_MAGIC_BYTES))
            if whole:
                os.replace(left, archive)
            else:
                os.unlink(left)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """One process at a time makes them; the kernel lets go of the lock when its holder dies."""
        with open(os.path.join(made(self._root), ".lock"), "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def link(self, module_options: str) -> None:
        """Everything but the archive, so that a training run starts as every later one does."""
        self._prune()
        made(self._root)
        work = tempfile.mkdtemp(prefix=".making-", dir=self._root)
        try:
            os.mkdir(os.path.join(work, _JARS))
            for source in self._sources:
                os.link(source, os.path.join(work, _JARS, os.path.basename(source)))
            with open(os.path.join(work, _OPTIONS), "w", encoding="utf-8") as file:
                json.dump({"options": module_options.split()}, file)
            _remove_unused(self.path)
            os.rename(work, self.path)
        except BaseException:
            shutil.rmtree(work, ignore_errors=True)
            raise

    @contextmanager
    def archiving(self) -> Iterator[str]:
        """A name at which a JVM may leave its archive. One that was interrupted is made again by the next run; where
        none came about, the next run does not try again."""
        try:
            with suppress(FileNotFoundError), replacing(os.path.join(self.path, _ARCHIVE)) as temporary:
                os.unlink(temporary)  # a JVM does not write over a file
                yield temporary
        except Exception:
            raise
        except BaseException:
            _remove_unused(self.path)
            raise

    def _linked(self) -> list[str]:
        return [os.path.join(self.path, _JARS, os.path.basename(source)) for source in self._sources]

    def _read_options(self) -> list[str] | None:
        try:
            with open(os.path.join(self.path, _OPTIONS), encoding="utf-8") as file:
                return [str(option) for option in json.load(file)["options"]]
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _runnable(self, options: list[str]) -> Iterator[str]:
        for option in options:
            if self._java.has_vector or option != f"--add-modules={VECTOR_MODULE}":
                yield option

    def _prune(self) -> None:
        if not os.path.isdir(self._root):
            return
        others = [entry for entry in os.scandir(self._root) if entry.is_dir() and entry.path != self.path]
        others.sort(key=lambda entry: entry.stat().st_mtime, reverse=True)
        for entry in others[KEPT_MAX - 1 :]:
            _remove_unused(entry.path)


def _remove_unused(path: str) -> None:
    """Removes one of these directories, unless a running JVM has its jars from there."""
    try:
        with open(os.path.join(path, _USED), "a") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
    except (FileNotFoundError, BlockingIOError):  # there is none, or it is used
        return


def _key(java: Java, sources: Sequence[str]) -> str:
    """What the JVM would compare as well: its own build, and each jar's name, size and time."""
    digest = hashlib.sha256(f"{FORMAT}\n{java.home}\n".encode())
    with suppress(OSError), open(os.path.join(java.home, "release"), "rb") as release:
        digest.update(release.read())
    for source in sources:
        with suppress(OSError):
            stat = os.stat(source)
            digest.update(f"{os.path.basename(source)} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:24]
