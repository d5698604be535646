"""The code of a version, as it lies in the version's directory: its file, and the modules that lay beside it.

    v2/pipeline.py            the file
    v2/_code/rules.py         a module that it imports; packages likewise, by their paths from the file's directory

`PipelineCatalog` is the only writer. New code of an old version takes several steps, and while they are under way a
mark stands there: a process that dies leaves code that nobody takes for whole.
"""

import base64
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.core.errors import OperatorError
from headrace.core.files import Disk
from headrace.tables.layout import CODE, MODULES

CHANGING = "_code.changing"
MODULES_MAX = 1_000
KEPT_ENDINGS = (".py", ".avsc")  # modules, and schemas that the file names


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionCode:
    """`modules` are by their paths, with `/`; `whole` is false for what a process left that died changing it."""

    main: bytes
    modules: Mapping[str, bytes] = field(default_factory=dict)
    whole: bool = True

    def __post_init__(self) -> None:
        if len(self.modules) > MODULES_MAX:
            raise OperatorError(f"{len(self.modules)} modules beside the file, more than {MODULES_MAX}; install them")
        for path in self.modules:
            parts = path.split("/")
            if os.path.isabs(path) or "" in parts or ".." in parts or "." in parts:
                raise OperatorError(f"{path!r}: a module of a pipeline lies beside its file")

    @classmethod
    def of(cls, code: "str | bytes | VersionCode") -> "VersionCode":
        if isinstance(code, VersionCode):
            return code
        return cls(main=code.encode() if isinstance(code, str) else code)

    @property
    def sha256(self) -> str:
        digest = hashlib.sha256(self.main)
        for path, source in sorted(self.modules.items()):
            digest.update(f"\0{path}\0{len(source)}\0".encode() + source)
        return digest.hexdigest()

    def to_json(self) -> bytes:
        """All of it as one object, for a store that has no directories."""
        modules = {path: base64.b64encode(source).decode() for path, source in sorted(self.modules.items())}
        return json.dumps({"main": base64.b64encode(self.main).decode(), "modules": modules}).encode()

    @classmethod
    def from_json(cls, data: bytes, path: str) -> "VersionCode":
        try:
            content = json.loads(data)
            modules = {name: base64.b64decode(source) for name, source in content["modules"].items()}
            return cls(main=base64.b64decode(content["main"]), modules=modules)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise OperatorError(f"{path}: not the code of a version ({error}); discard the version") from error


def read_version_code(directory: str, disk: Disk) -> VersionCode | None:
    """None where there is no file."""
    main = disk.read_file(os.path.join(directory, CODE))
    if main is None:
        return None
    root = os.path.join(directory, MODULES)
    modules = {path: disk.read_file(os.path.join(root, path)) or b"" for path in _paths(root)}
    return VersionCode(main=main, modules=modules, whole=not os.path.exists(os.path.join(directory, CHANGING)))


def write_version_code(directory: str, code: VersionCode, disk: Disk) -> None:
    root, mark = os.path.join(directory, MODULES), os.path.join(directory, CHANGING)
    before = _paths(root)
    several = bool(before or code.modules)
    if several:
        disk.write_file(mark, b"")
        disk.sync_directory(directory)
    for path, source in sorted(code.modules.items()):
        disk.make_directory(os.path.dirname(os.path.join(root, path)))
        disk.replace_file(os.path.join(root, path), source)
    for path in sorted(set(before) - code.modules.keys()):
        disk.unlink(os.path.join(root, path))
    for each in _directories(root):
        disk.sync_directory(each)
    disk.replace_file(os.path.join(directory, CODE), code.main)
    disk.sync_directory(directory)
    if several:
        disk.unlink(mark)
        disk.sync_directory(directory)


def _paths(root: str) -> list[str]:
    return [
        os.path.relpath(os.path.join(directory, name), root).replace(os.sep, "/")
        for directory, _, names in os.walk(root)
        for name in names
        if name.endswith(KEPT_ENDINGS)
    ]


def _directories(root: str) -> list[str]:
    return [directory for directory, _, _ in os.walk(root, topdown=False)]
