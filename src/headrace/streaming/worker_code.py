"""What Spark's Python workers import of a version: its own modules, on this machine and on a cluster.

The functions of the pipeline's file itself go to the workers by value. Functions of the modules beside it go by name,
so the workers must find those modules: they get them as an archive that bears the version's name. Byte code is in it
beside the source, made with the names of the user's own files, so that a traceback from a worker names those.
"""

import os
import py_compile
import tempfile
import zipfile
from typing import TYPE_CHECKING, Any

from headrace.streaming.loading import LoadedPipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PREFIX = "headrace-code-"
# Spark gives a worker only tasks of its own environment: none that has imported another version's modules.
_VARIABLE = "HEADRACE_CODE"


class WorkerCode:
    def __init__(self, spark: "SparkSession", loaded: LoadedPipeline, version: int) -> None:
        from pyspark.cloudpickle import register_pickle_by_value

        self._context: Any = spark.sparkContext
        self._archive = ""
        self._roots = list(loaded.own.roots)
        register_pickle_by_value(loaded.module)
        if loaded.own.sources:
            name = f"{_PREFIX}{loaded.pipeline}-v{version}-{loaded.version_code.sha256[:12]}.zip"
            path = os.path.join(self._context._temp_dir, name)
            if not os.path.exists(path):
                _write_archive(path, loaded)
                self._context.addFile(path)
            self._archive = name
        self.use()

    def use(self) -> None:
        """For the functions that are handed to Spark from now on."""
        includes: list[str] = self._context._python_includes
        others = [name for name in includes if not name.startswith(_PREFIX)]
        own = [f"{self._archive}/{root}" if root else self._archive for root in self._roots] if self._archive else []
        includes[:] = [*others, *own]
        if self._archive:
            self._context.environment[_VARIABLE] = self._archive
        else:
            self._context.environment.pop(_VARIABLE, None)


def _write_archive(path: str, loaded: LoadedPipeline) -> None:
    own = loaded.own
    with tempfile.TemporaryDirectory() as scratch, zipfile.ZipFile(path + ".tmp", "w") as archive:
        compiled, source_file = os.path.join(scratch, "compiled"), os.path.join(scratch, "source")
        for name, source in sorted(own.sources.items()):
            archive.writestr(name, source)
            with open(source_file, "wb") as file:
                file.write(source)
            # A module that does not compile is imported by nobody, or fails where it is.
            if py_compile.compile(
                source_file,
                compiled,
                dfile=own.file(name),
                quiet=2,
                invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
            ):
                archive.write(compiled, name + "c")
    os.replace(path + ".tmp", path)
