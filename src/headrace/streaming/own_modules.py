"""The modules of a pipeline: those that lie beside its file, and that it imports.

They are imported from bytes that were read once, so that what a version keeps of them is what it runs, also where a
function imports one only when it is called. No byte code is cached beside them: it would be taken for the current one
when a file changes twice in a second. A process has the modules of one pipeline at a time: those of an earlier one are
forgotten, for they may have the same names. What is installed is no module of a pipeline.
"""

import ast
import importlib.abc
import importlib.util
import os
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType

from headrace.core.errors import OperatorError

FILE_BYTES_MAX = 4 << 20
_INSTALLED = ("site-packages", "dist-packages")


class OwnModules(importlib.abc.MetaPathFinder):
    """`sources` are what was read, by paths from the directory; `roots` the places in it that `import` looks in."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.sources: dict[str, bytes] = {}
        self.roots: list[str] = [""]
        self._standard = sysconfig.get_path("stdlib") + os.sep

    def install(self) -> None:
        for finder in [each for each in sys.meta_path if isinstance(each, OwnModules)]:
            sys.meta_path.remove(finder)
            if finder.directory in sys.path:
                sys.path.remove(finder.directory)
        for name, module in list(sys.modules.items()):
            if isinstance(getattr(module, "__loader__", None), _OwnLoader):
                del sys.modules[name]
        sys.meta_path.insert(0, self)
        # For all that is no Python source, and for directories without an __init__.py.
        sys.path.insert(0, self.directory)

    @property
    def files(self) -> frozenset[str]:
        return frozenset(self.file(path) for path in self.sources)

    def file(self, path: str) -> str:
        return os.path.join(self.directory, *path.split("/"))

    def source(self, path: str) -> bytes:
        if path not in self.sources:
            self.sources[path] = _read(self.file(path))
        return self.sources[path]

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if _is_headrace(fullname):
            return None
        found = self._find(fullname.rpartition(".")[2], path if path is not None else sys.path)
        if found is None:
            return None
        file = self.file(found)
        package = [os.path.dirname(file)] if file.endswith("__init__.py") else None
        loader = _OwnLoader(self, found)
        return importlib.util.spec_from_file_location(fullname, file, loader=loader, submodule_search_locations=package)

    def add_imports_of(self, code: str) -> None:
        """Also what is imported only when a function is called, here and in the modules themselves."""
        self._add(code, package=[])
        seen: set[str] = set()
        while news := self.sources.keys() - seen:
            for path in sorted(news):
                seen.add(path)
                self._add(self.sources[path], package=self._package(path))

    def _add(self, code: str | bytes, package: list[str]) -> None:
        try:
            tree = ast.parse(code)
        except (SyntaxError, ValueError):
            return  # it is said with its line when it is imported
        for name in _imported(tree, package):
            if not _is_headrace(name):
                self._add_module(name)

    def _add_module(self, name: str) -> None:
        places: Iterable[str] = [self.file(root) if root else self.directory for root in self.roots]
        for part in name.split("."):
            found = self._find(part, places)
            if found is not None:
                self.source(found)
                if not found.endswith("__init__.py"):
                    return
            places = [os.path.join(place, part) for place in places]

    def _find(self, name: str, places: Iterable[str]) -> str | None:
        for place in places:
            root = self._root(os.path.abspath(place or os.curdir))
            if root is None:
                continue
            for tail in (f"{name}/__init__.py", f"{name}.py"):
                path = f"{root}/{tail}" if root else tail
                if path in self.sources or os.path.isfile(self.file(path)):
                    if place in sys.path and root not in self.roots:
                        self.roots.append(root)
                    return path
        return None

    def _root(self, place: str) -> str | None:
        """A directory by its path from ours; None for one that is elsewhere, or has what is installed."""
        if place == self.directory:
            return ""
        inside = place.startswith(self.directory + os.sep) and not (place + os.sep).startswith(self._standard)
        root = os.path.relpath(place, self.directory).replace(os.sep, "/") if inside else ""
        return root if inside and not any(each in root.split("/") for each in _INSTALLED) else None

    def _package(self, path: str) -> list[str]:
        """The package that a module's relative imports start from."""
        root = max((each for each in self.roots if path.startswith(f"{each}/")), key=len, default="")
        return path.removeprefix(f"{root}/").split("/")[:-1]


def read_beside(name: str, directory: str) -> bytes:
    """A file of the pipeline that is being read. If it lies beside it, it is kept with its code; any other is found
    from `directory`."""
    finder = next((each for each in sys.meta_path if isinstance(each, OwnModules)), None)
    path = os.path.normpath(name).replace(os.sep, "/")
    inside = not os.path.isabs(name) and not path.startswith("..")
    if finder is not None and inside and (path in finder.sources or os.path.isfile(finder.file(path))):
        return finder.source(path)
    with open(os.path.join(directory, name), "rb") as file:
        return file.read()


class _OwnLoader(importlib.abc.InspectLoader):
    def __init__(self, modules: OwnModules, path: str) -> None:
        self._modules = modules
        self._path = path

    def get_source(self, fullname: str) -> str:
        return importlib.util.decode_source(self._modules.source(self._path))

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self._modules.source(self._path), self._modules.file(self._path))

    def is_package(self, fullname: str) -> bool:
        return self._path.endswith("__init__.py")


def _is_headrace(name: str) -> bool:
    """This package may lie beside a pipeline's file, in a checkout of it."""
    return name.partition(".")[0] == "headrace"


def _imported(tree: ast.AST, package: list[str]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            before = package[: len(package) - node.level + 1] if node.level else []
            base = [*before, *([node.module] if node.module else [])]
            # What is imported from a package may be a module of it.
            yield from (".".join([*base, alias.name]) for alias in node.names)


def _read(file: str) -> bytes:
    try:
        if os.path.getsize(file) > FILE_BYTES_MAX:
            raise OperatorError(f"{file}: more than {FILE_BYTES_MAX} bytes; that is not a module of a pipeline")
        with open(file, "rb") as stream:
            return stream.read()
    except OSError as error:
        raise OperatorError(f"{file}: {(error.strerror or str(error)).lower()}") from error
