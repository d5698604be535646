"""A pipeline of functions that are at hand, in a notebook or a test, instead of a file.

What the given functions read comes along: the names of their arguments are looked up among what was given, where
`hr.run` was called, and in the functions' own modules. What a version keeps of them is their source, to see a change
by; it cannot be run from there.
"""

import dataclasses
import hashlib
import inspect
import marshal
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from textwrap import dedent
from typing import Any

from headrace.core.errors import OperatorError
from headrace.streaming.declarations import Node, Source, Static, TableStream, TopicStream
from headrace.streaming.declare_nodes import DECLARED
from headrace.streaming.loading import LoadedPipeline
from headrace.streaming.own_modules import OwnModules

NAME_DEFAULT = "notebook"
_KEPT_HEAD = 'raise SystemExit("functions that were given to hr.run; give them to it again, or put them into a file")\n'


def node_of(value: object) -> Node | None:
    """What a decorator noted about a function; None for anything else."""
    node = getattr(value, "__dict__", {}).get(DECLARED)
    return node if isinstance(node, Node) else None


def load_functions(
    given: Iterable[Callable[..., Any] | Source], *, names: Mapping[str, object], pipeline: str | None = None
) -> LoadedPipeline:
    """`names` are the variables where they were given."""
    values = list(given)
    sources = {value.name: value for value in values if isinstance(value, TopicStream | TableStream | Static)}
    wanted = [_declared(value) for value in values if not isinstance(value, TopicStream | TableStream | Static)]
    if not wanted:
        raise OperatorError(
            "hr.run: no function was given; give functions decorated with @hr.table or another decorator of hr"
        )
    nodes: dict[str, Node] = {}
    while wanted:
        node = wanted.pop(0)
        if node.name in nodes:
            continue
        nodes[node.name] = node
        around = {**inspect.unwrap(node.function).__globals__, **names}
        for argument in node.inputs:
            if argument in node.defaults or argument in nodes:
                continue
            found = around.get(argument)
            if isinstance(found, TopicStream | TableStream | Static):
                sources[argument] = found
            elif (upstream := _named(around, argument)) is not None:
                wanted.append(upstream)
    first = next(iter(nodes.values()))
    module = sys.modules[first.function.__module__]
    return LoadedPipeline(
        pipeline=pipeline or _name(module),
        file=first.place.file,
        code=_kept(nodes.values(), sources),
        sources=sources,
        nodes=tuple(nodes.values()),
        module=module,
        own=OwnModules(os.path.dirname(os.path.abspath(first.place.file))),
    )


def _declared(value: object) -> Node:
    node = node_of(value)
    if node is None:
        name = getattr(value, "__name__", repr(value))
        raise OperatorError(
            f"{name}: not a function of a pipeline; decorate it with @hr.table, @hr.view or another decorator of hr"
        )
    return node


def _named(around: Mapping[str, object], name: str) -> Node | None:
    """By its variable, or by the name that its decorator gave it."""
    direct = node_of(around.get(name))
    if direct is not None and direct.name == name:
        return direct
    return next((node for node in map(node_of, around.values()) if node is not None and node.name == name), None)


def _name(module: Any) -> str:
    file = getattr(module, "__file__", None)
    return os.path.splitext(os.path.basename(file))[0] if file else NAME_DEFAULT


def _kept(nodes: Iterable[Node], sources: Mapping[str, Source]) -> str:
    parts = [_KEPT_HEAD]
    for name, source in sorted(sources.items()):
        values = {each.name: getattr(source, each.name) for each in dataclasses.fields(source) if each.name != "place"}
        parts.append(f"{name} = {str(values)!r}\n")
    return "\n".join([*parts, *map(_source_of, nodes)])


def _source_of(node: Node) -> str:
    function = inspect.unwrap(node.function)
    try:
        return dedent(inspect.getsource(function))
    except (OSError, TypeError):  # typed into a shell that keeps no source
        digest = hashlib.sha256(marshal.dumps(function.__code__)).hexdigest()
        return f"{node.name} = {digest!r}\n"
