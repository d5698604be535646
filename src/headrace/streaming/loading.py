"""Imports a pipeline's file and returns what it declares.

The file is the user's code: whatever it raises becomes one line with file and line. What lies beside it can be
imported, and belongs to its code.
"""

import importlib.util
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType

from headrace.core.errors import OperatorError
from headrace.streaming.declarations import (
    Declared,
    Node,
    PipelineError,
    Source,
    SourceLine,
    Static,
    TableStream,
    collecting,
)
from headrace.streaming.declare_nodes import DECLARED
from headrace.streaming.own_modules import FILE_BYTES_MAX, OwnModules
from headrace.tables.version_code import VersionCode

_MODULE_PREFIX = "headrace_pipeline_"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedPipeline:
    """A pipeline's file, run. `sources` has each source under every name by which an argument can mean it."""

    pipeline: str
    file: str
    code: str
    sources: Mapping[str, Source]
    nodes: tuple[Node, ...]
    module: ModuleType
    own: OwnModules

    @property
    def version_code(self) -> VersionCode:
        return VersionCode(main=self.code.encode(), modules=dict(self.own.sources))

    @property
    def files(self) -> frozenset[str]:
        """The user's own files."""
        return self.own.files | {self.file}


def load(path: str, *, pipeline: str | None = None, beside: str | None = None) -> LoadedPipeline:
    """`pipeline` is the name to give it when neither the file says one nor its own name is one; `beside` is where its
    modules lie, if not beside it."""
    file = os.path.abspath(path)
    code = read_code(file)
    own = OwnModules(beside or os.path.dirname(file))
    own.install()
    with collecting() as declared:
        module = _run(file, code, own)
    own.add_imports_of(code)
    _take_imported(declared, module)
    stem = os.path.splitext(os.path.basename(file))[0]
    return LoadedPipeline(
        pipeline=declared.pipeline or pipeline or stem,
        file=file,
        code=code,
        sources=_named(declared, module),
        nodes=tuple(declared.nodes),
        module=module,
        own=own,
    )


def read_code(file: str) -> str:
    try:
        if os.path.getsize(file) > FILE_BYTES_MAX:
            raise OperatorError(f"{file}: more than {FILE_BYTES_MAX} bytes; that is not a pipeline")
        with open(file, encoding="utf-8") as stream:
            return stream.read()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise OperatorError(f"{file}: {reason}; give the path of a pipeline's Python file") from error
    except UnicodeDecodeError as error:
        raise OperatorError(f"{file}: not UTF-8 at byte {error.start}; give the path of a Python file") from error


def _run(file: str, code: str, own: OwnModules) -> ModuleType:
    name = _MODULE_PREFIX + "".join(c if c.isalnum() else "_" for c in os.path.splitext(os.path.basename(file))[0])
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None:
        raise OperatorError(f"{file}: not a Python file; its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    # What it finds by its own place is found where its modules are, also when it runs from a version's directory.
    module.__file__ = os.path.join(own.directory, os.path.basename(file))
    sys.modules[name] = module
    try:
        # Compiled from what was read, so that the code that is kept is the code that runs.
        exec(compile(code, file, "exec"), module.__dict__)
    except OperatorError:
        raise
    except SyntaxError as error:
        line = error.lineno or 0
        raise PipelineError(SourceLine(error.filename or file, line), f"{error.msg}") from error
    except (Exception, SystemExit) as error:
        what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        if "SESSION_OR_CONTEXT_NOT_EXISTS" in what:
            what = (
                "this line needs Spark, and the file is read before Spark starts; give a type as an object "
                '(IntegerType(), not "int"), or do it inside a function of the pipeline'
            )
        raise PipelineError(SourceLine.of_error(error, own.files | {file}) or SourceLine(file, 1), what) from error
    return module


def _take_imported(declared: Declared, module: ModuleType) -> None:
    """Functions that were declared in a module which was imported before are nodes as well."""
    known = {id(node) for node in declared.nodes}
    for value in module.__dict__.values():
        node = getattr(value, "__dict__", {}).get(DECLARED)
        if isinstance(node, Node) and id(node) not in known:
            known.add(id(node))
            declared.nodes.append(node)


def _named(declared: Declared, module: ModuleType) -> dict[str, Source]:
    """A source goes by the variables that hold it; one that no variable holds, by its own name."""
    named: dict[str, Source] = {}
    held = {id(source) for node in declared.nodes for source in node.defaults.values()}
    nodes = {node.name for node in declared.nodes}
    for name, value in module.__dict__.items():
        if isinstance(value, Source):
            named[name] = value
            held.add(id(value))
    for source in declared.sources:
        # A stream of an own table that nobody holds must not stand for the table itself.
        if id(source) not in held and not (isinstance(source, TableStream | Static) and source.table in nodes):
            named.setdefault(source.name, source)
    return named
