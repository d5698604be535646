"""Where Spark's own log goes: a file, never the screen. One a process, bounded in size and in number."""

import os
from contextlib import suppress

from headrace.core.cache_directory import cache_directory
from headrace.streaming.cache import made

FILES_MAX = 10
_PREFIX = "spark-"

# Streams that Spark closes while it stops are logged by it as errors; those are kept, at the end of a file that
# nobody opens unless something else went wrong.
_PROPERTIES = """\
status = error
rootLogger.level = {level}
rootLogger.appenderRef.file.ref = file
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {path}
appender.file.filePattern = {path}.%i
appender.file.append = true
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd'T'HH:mm:ss.SSS}} %p %c{{1}}: %m%n%ex
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 10MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 2
"""


def new_log_path() -> str:
    """A log file for this process; the oldest of earlier ones are removed."""
    directory = made(os.path.join(cache_directory(), "logs"))
    path = os.path.join(directory, f"{_PREFIX}{os.getpid()}.log")
    others = [entry for entry in os.scandir(directory) if entry.name.startswith(_PREFIX) and entry.path != path]
    with suppress(OSError):  # another process may remove the same ones
        others.sort(key=lambda entry: entry.stat().st_mtime, reverse=True)
    for entry in others[FILES_MAX - 1 :]:
        with suppress(OSError):
            os.unlink(entry.path)
    return path


def log4j_properties(path: str, level: str) -> str:
    """The log4j2 configuration that sends everything from `level` on to the file."""
    return _PROPERTIES.format(path=path.replace("\\", "\\\\"), level=level)
