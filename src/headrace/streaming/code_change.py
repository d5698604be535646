"""Whether changed code asks for a replay: which nodes it touches, and whether those have written anything.

Comments, docstrings and layout are no change. A change of one function touches that node and whatever reads it; a
change of anything that cannot be followed (a module beside the file, a statement that binds no name) touches all. Nodes
that were touched and have written no row begin again from nothing with the new code, and the version goes on.
"""

import ast
import os
from collections import Counter
from collections.abc import Iterable

from headrace.core.errors import OperatorError
from headrace.tables.delta_log import DeltaLog
from headrace.tables.layout import PipelineLayout
from headrace.tables.storage import is_delta, storage_of
from headrace.tables.version_code import VersionCode

_DOCUMENTED = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def meaning(code: bytes | str) -> ast.Module:
    """What a file says to Python, without comments, layout and docstrings."""
    tree = ast.parse(code)
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:]
    return tree


def same_code(left: bytes | str | None, right: bytes | str | None) -> bool:
    if left == right:
        return True
    if left is None or right is None:
        return False
    try:
        return ast.dump(meaning(left)) == ast.dump(meaning(right))
    except (SyntaxError, ValueError):
        return False


def changed_files(kept: VersionCode, given: VersionCode, main: str) -> tuple[str, ...]:
    """The files that do something else, by name. `main` is the name of the pipeline's file."""
    names = sorted(kept.modules.keys() | given.modules.keys())
    changed = [name for name in names if not same_code(kept.modules.get(name), given.modules.get(name))]
    if not kept.whole or not same_code(kept.main, given.main):
        changed.insert(0, main)
    return tuple(changed)


def touched_names(kept: VersionCode, given: VersionCode) -> frozenset[str] | None:
    """The names of the file, nodes among them, that mean something else now; None where that cannot be told."""
    paths = kept.modules.keys() | given.modules.keys()
    if not kept.whole or any(not same_code(kept.modules.get(each), given.modules.get(each)) for each in paths):
        return None
    try:
        old, new = meaning(kept.main).body, meaning(given.main).body
    except (SyntaxError, ValueError):
        return None
    counts = [Counter(map(ast.dump, side)) for side in (old, new)]
    both = counts[0] & counts[1]
    if _in_order(old, both) != _in_order(new, both):
        return None
    changed = [each for each in (*old, *new) if counts[0][ast.dump(each)] != counts[1][ast.dump(each)]]
    touched: set[str] = set()
    for statement in changed:
        names = _bound(statement)
        if names is None:
            return None
        touched |= names
    return _closed(touched, (*old, *new))


def _in_order(statements: list[ast.stmt], both: "Counter[str]") -> list[str]:
    return [text for text in map(ast.dump, statements) if text in both]


def _closed(touched: set[str], statements: Iterable[ast.stmt]) -> frozenset[str] | None:
    """With everything that mentions one of the names, and so on."""
    mentions = [(_bound(each), _mentioned(each)) for each in statements]
    size = -1
    while size != len(touched):
        size = len(touched)
        for bound, mentioned in mentions:
            if mentioned & touched:
                if bound is None:
                    return None
                touched |= bound
    return frozenset(touched)


def _bound(statement: ast.stmt) -> set[str] | None:
    """The names that a statement gives a meaning to; None for one that may do anything."""
    match statement:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            return {statement.name, *_names_given(statement)}
        case ast.ClassDef():
            return {statement.name}
        case ast.Assign(targets=targets) if all(isinstance(each, ast.Name) for each in targets):
            return {each.id for each in targets if isinstance(each, ast.Name)}
        case ast.AnnAssign(target=ast.Name(id=name)):
            return {name}
        case ast.Import(names=names) | ast.ImportFrom(names=names) if all(each.name != "*" for each in names):
            return {each.asname or each.name.partition(".")[0] for each in names}
    return None


def _names_given(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """A node may be named otherwise than its function."""
    calls = [each for each in function.decorator_list if isinstance(each, ast.Call)]
    values = [keyword.value for call in calls for keyword in call.keywords if keyword.arg == "name"]
    return {each.value for each in values if isinstance(each, ast.Constant) and isinstance(each.value, str)}


def _mentioned(statement: ast.stmt) -> set[str]:
    """Names that are read, arguments (which mean nodes and sources), and texts, which may be names of tables."""
    found: set[str] = set()
    for node in ast.walk(statement):
        match node:
            case ast.Name(id=name):
                found.add(name)
            case ast.arg(arg=name):
                found.add(name)
            case ast.Constant(value=str() as text):
                found.add(text)
    return found


class VersionOutput:
    """What the nodes of a version have left behind; and making them begin again."""

    def __init__(self, layout: PipelineLayout, version: int, tables: Iterable[str]) -> None:
        self._layout = layout
        self._version = version
        self._tables = frozenset(tables)

    def rows(self, node: str) -> bool:
        """Whether a node may have written a row."""
        path = self._layout.table_dir(self._version, node)
        if node in self._tables:
            return is_delta(path) and _has_rows(path, node)
        checkpoint = self._layout.checkpoint_dir(self._version, node)
        return bool(storage_of(checkpoint).names(os.path.join(checkpoint, "offsets")))

    def forget(self, node: str) -> None:
        """The next run of the node begins at its start. For a node without rows only."""
        layout, version = self._layout, self._version
        storage = storage_of(layout.root)
        checkpoint = layout.checkpoint_dir(version, node)
        beside = os.path.dirname(checkpoint)
        # Offsets first: a checkpoint without its table would go on where nothing is.
        for name in storage.names(beside):
            if name == node or name.startswith(f"{node}.quarantine."):
                storage.remove_tree(os.path.join(beside, name))
        for path in (layout.quarantine_dir(version, node), layout.deletes_dir(version, node)):
            storage.remove_tree(path)
        if node in self._tables:
            storage.remove_tree(layout.table_dir(version, node))
        ledger = layout.expectations_file(version, node)
        if storage.read(ledger):
            storage.write(ledger, b"")


def _has_rows(path: str, name: str) -> bool:
    try:
        log = DeltaLog(path, name)
        return log.first > 0 or any(log.commit(version).rows_added != 0 for version in log.versions)
    except OperatorError:
        return True
