"""Where everything of a pipeline lies: names and paths, and nothing else. It never touches the disk.

    <tables>/<name>                            -> .headrace/<pipeline>/live/<name>   the stable path, a symbolic link
    <tables>/.headrace/<pipeline>/live         -> v2                                one rename cuts all tables over
    <tables>/.headrace/<pipeline>/catalog.json
    <tables>/.headrace/<pipeline>/v2/          pipeline.py, _code/ (modules beside it), run.json
    <tables>/.headrace/<pipeline>/v2/<name>/   a Delta table
    <tables>/.headrace/<pipeline>/v2/_checkpoints/<node>/, _quarantine/<node>/, _expectations/<node>.jsonl
    <tables>/.headrace/<pipeline>/v2/_deletes/<node>/   which keys a keyed table has lost, and when

All links are relative, so that the whole directory can be moved or mounted elsewhere.
"""

import os
import re
from dataclasses import dataclass

from headrace.core.errors import OperatorError

TABLES_DIR_DEFAULT = "./headrace-tables"
TABLES_DIR_VARIABLE = "HEADRACE_TABLES"
HIDDEN = ".headrace"
LIVE = "live"
QUARANTINE = "_quarantine"
EXPECTATIONS = "_expectations"
CHECKPOINTS = "_checkpoints"
DELETES = "_deletes"
LOCKS = "_locks"
CODE = "pipeline.py"
MODULES = "_code"
TRASH_PREFIX = ".trash-"
STAGING_PREFIX = ".staging-"
NAME_BYTES_MAX = 200  # below the 255 of a file name, with room for what is put before and behind it

# A table's name is a function's name; the underscore in front belongs to our own directories.
_TABLE_NAME = re.compile(r"[^\W\d_][\w-]*")
_PIPELINE_NAME = re.compile(r"[^\W_][\w.-]*")
_SCHEMES = {"s3a://": "s3://", "file://": ""}  # other ways to write what we write
_VERSION_NAME = re.compile(r"v([1-9][0-9]*)")


def check_table_name(name: str) -> str:
    rule = "begin with a letter, go on with letters, digits, '_' and '-'"
    return _checked(name, "table", _TABLE_NAME, rule)


def check_pipeline_name(name: str) -> str:
    rule = "begin with a letter or digit, go on with letters, digits, '_', '-' and '.'"
    return _checked(name, "pipeline", _PIPELINE_NAME, rule)


def _checked(name: str, kind: str, pattern: "re.Pattern[str]", rule: str) -> str:
    if not pattern.fullmatch(name) or len(name.encode()) > NAME_BYTES_MAX:
        raise OperatorError(f"{kind} {name!r}: not a name for a {kind}; {rule}, at most {NAME_BYTES_MAX} bytes")
    return name


def version_number(directory_name: str) -> int | None:
    """2 for `v2`; None for what is not the directory of a version."""
    match = _VERSION_NAME.fullmatch(directory_name)
    return int(match[1]) if match else None


def tables_root(tables_dir: str | os.PathLike[str]) -> str:
    """The absolute path of a tables directory, or the URL of a place in an object store."""
    path = os.fspath(tables_dir)
    for scheme, known in _SCHEMES.items():
        if path.startswith(scheme):
            path = known + path.removeprefix(scheme)
    if "://" not in path:
        return os.path.abspath(path)
    if not re.fullmatch(r"s3://[a-z0-9][a-z0-9.-]+(/.*)?", path):
        raise OperatorError(f"{path}: not a place for tables; give a directory, or s3://BUCKET/PREFIX")
    return path.rstrip("/")


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineLayout:
    """The paths of one pipeline. `tables_dir` is absolute."""

    tables_dir: str
    pipeline: str

    @classmethod
    def of(cls, tables_dir: str | os.PathLike[str], pipeline: str) -> "PipelineLayout":
        return cls(tables_dir=tables_root(tables_dir), pipeline=check_pipeline_name(pipeline))

    @property
    def root(self) -> str:
        return os.path.join(self.tables_dir, HIDDEN, self.pipeline)

    @property
    def catalog_file(self) -> str:
        return os.path.join(self.root, "catalog.json")

    @property
    def lock_file(self) -> str:
        """One lock for all pipelines of a directory, since they share its table names."""
        return os.path.join(self.tables_dir, HIDDEN, ".lock")

    @property
    def live_link(self) -> str:
        return os.path.join(self.root, LIVE)

    def version_dir(self, version: int) -> str:
        return os.path.join(self.root, f"v{version}")

    def code_file(self, version: int) -> str:
        return os.path.join(self.version_dir(version), CODE)

    def modules_dir(self, version: int) -> str:
        return os.path.join(self.version_dir(version), MODULES)

    def run_file(self, version: int) -> str:
        return os.path.join(self.version_dir(version), "run.json")

    def table_dir(self, version: int, table: str) -> str:
        return os.path.join(self.version_dir(version), table)

    def checkpoint_dir(self, version: int, node: str) -> str:
        return os.path.join(self.version_dir(version), CHECKPOINTS, node)

    def quarantine_dir(self, version: int, node: str) -> str:
        return os.path.join(self.version_dir(version), QUARANTINE, node)

    def deletes_dir(self, version: int, node: str) -> str:
        return os.path.join(self.version_dir(version), DELETES, node)

    def expectations_file(self, version: int, node: str) -> str:
        return os.path.join(self.version_dir(version), EXPECTATIONS, f"{node}.jsonl")

    def lock_of_node(self, version: int, node: str) -> str:
        """Held by the run that runs a node, whichever version's run that is."""
        return os.path.join(self.version_dir(version), LOCKS, node)

    def taken_links(self, owner: int, node: str) -> dict[str, str]:
        """What a version that takes a node over from another has in its directory: links, and where they lead."""
        places = (
            node,
            *(f"{each}/{node}" for each in (CHECKPOINTS, QUARANTINE, DELETES)),
            f"{EXPECTATIONS}/{node}.jsonl",
        )
        return {place: f"{'../' * (place.count('/') + 1)}v{owner}/{place}" for place in places}

    def stable_path(self, table: str) -> str:
        """What readers open: the same path whichever version is live."""
        return os.path.join(self.tables_dir, table)

    def stable_target(self, table: str) -> str:
        return os.path.join(HIDDEN, self.pipeline, LIVE, table)


def taken_owner(link_target: str) -> int | None:
    """The version that a link of `taken_links` leads to; None for any other link."""
    parts = [part for part in link_target.split("/") if part != ".."]
    return version_number(parts[0]) if link_target.startswith("../") and len(parts) > 1 else None


def stable_owner(link_target: str) -> tuple[str, str] | None:
    """(pipeline, table) of what a stable link holds; None for a link that is not ours."""
    parts = link_target.split(os.sep)
    if len(parts) == 4 and parts[0] == HIDDEN and parts[2] == LIVE:
        return parts[1], parts[3]
    return None
