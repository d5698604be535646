"""What a pipeline makes, as its file says it: `@hr.table`, `@hr.view`, `@hr.to_topic`, `@hr.for_each_batch`.

A decorated function stays the plain function that it was, so that a test can call it with DataFrames of its own.
What one line alone can get wrong is checked here; it must never import Spark.
"""

import inspect
from collections.abc import Callable, Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import Any, Literal, TypeVar, overload

from headrace.streaming.declarations import (
    BATCH_ARGUMENT,
    BatchOutput,
    Late,
    Latency,
    Mode,
    Node,
    Output,
    PipelineError,
    SourceLine,
    Static,
    TableOutput,
    TableStream,
    TopicOutput,
    TopicStream,
    ViewOutput,
    collected,
)
from headrace.streaming.declared_tables import Names, check_table, length_of, mode_of, names_of
from headrace.streaming.declared_values import one_of, options_of
from headrace.streaming.rules import Expect, expectations_of, order_expected

F = TypeVar("F", bound=Callable[..., Any])
DECLARED = "__headrace_node__"
TASKS_MAX = 1_000
LATE = ("count", "quarantine")


@overload
def table(function: F, /) -> F: ...
@overload
def table(
    *,
    key: Names = ...,
    partition_by: Names = ...,
    mode: Mode | None = ...,
    order_by: Names = ...,
    delete: str | None = ...,
    truncate: str | None = ...,
    leave_out: Names = ...,
    history: bool = ...,
    nulls: Literal["null", "unchanged"] = ...,
    forget_deletes_after: str | timedelta | None = ...,
    expect: Expect | None = ...,
    late: Late = ...,
    evolve: bool = ...,
    into: str | None = ...,
    replace_where: str | None = ...,
    change_feed: bool = ...,
    properties: Mapping[str, Any] | None = ...,
    trigger: str | None = ...,
    options: Mapping[str, Any] | None = ...,
    name: str | None = ...,
) -> Callable[[F], F]: ...
def table(
    function: Any = None,
    /,
    *,
    key: Names = (),
    partition_by: Names = (),
    mode: Mode | None = None,
    order_by: Names = (),
    delete: str | None = None,
    truncate: str | None = None,
    leave_out: Names = (),
    history: bool = False,
    nulls: Literal["null", "unchanged"] = "null",
    forget_deletes_after: str | timedelta | None = "7 days",
    expect: Expect | None = None,
    late: Late = "count",
    evolve: bool = False,
    into: str | None = None,
    replace_where: str | None = None,
    change_feed: bool = False,
    properties: Mapping[str, Any] | None = None,
    trigger: str | None = None,
    options: Mapping[str, Any] | None = None,
    name: str | None = None,
) -> Any:
    """The function's rows are a Delta table: appended, or with a `key` merged, or with mode="complete" rewritten.

    `order_by` says which of several rows of one key is the last, whichever comes first; else the log's offsets do.
    A row whose order is null goes to quarantine. `delete` says which rows remove their key. Deletes are remembered for
    `forget_deletes_after` of log time (None: forever): an older row with a time later than that is taken as new.
    `truncate` says which rows remove all that is older; `leave_out` names columns that are not stored, such as
    those of order and operation. With `nulls="unchanged"` a null leaves the column as it was.

    With `history` the table keeps every version of a row: `valid_from` and `valid_to` are values of the one `order_by`
    column (`valid_to` is exclusive), and `is_current` tells the version that is valid now.
    `into` and `replace_where` fill another node's table back: the first batch replaces, later ones append.
    Rows that come behind a watermark are counted; with `late="quarantine"` they go to quarantine as well.

    >>> import headrace as hr
    >>> @hr.table(key="id", order_by="lsn", delete="op = 'd'")
    ... def people(people_changes):
    ...     return people_changes
    """
    place = SourceLine.of_caller()
    output = TableOutput(
        key=names_of(key),
        partition_by=names_of(partition_by),
        mode=mode_of(place, mode),
        order_by=names_of(order_by),
        delete=delete,
        truncate=truncate,
        leave_out=names_of(leave_out),
        history=history,
        nulls=nulls,
        forget_deletes_after=length_of(place, "forget_deletes_after", forget_deletes_after),
        evolve=evolve,
        into=into,
        replace_where=replace_where,
        change_feed=change_feed,
        properties=options_of(properties),
    )
    check_table(place, output)
    one_of(place, "late", late, LATE)
    return _decorator(function, output, expect=expect, trigger=trigger, options=options, name=name, late=late)


@overload
def materialized(function: F, /) -> F: ...
@overload
def materialized(
    *,
    every: str | None = ...,
    partition_by: Names = ...,
    evolve: bool = ...,
    change_feed: bool = ...,
    properties: Mapping[str, Any] | None = ...,
    name: str | None = ...,
) -> Callable[[F], F]: ...
def materialized(
    function: Any = None,
    /,
    *,
    every: str | None = None,
    partition_by: Names = (),
    evolve: bool = False,
    change_feed: bool = False,
    properties: Mapping[str, Any] | None = None,
    name: str | None = None,
) -> Any:
    """The function's rows, computed from the whole of the tables that it reads, replace the table in one commit.

    It gets plain DataFrames, not streams, so that everything in Spark SQL is allowed. It is computed again when one of
    its tables has changed, at most `every` so often ("10 minutes"); static tables are read as they are then.

    >>> import headrace as hr
    >>> @hr.materialized(every="1 minute")
    ... def best_customers(revenue):
    ...     return revenue.orderBy("amount", ascending=False).limit(10)
    """
    place = SourceLine.of_caller()
    length = length_of(place, "every", every)
    output = TableOutput(
        partition_by=names_of(partition_by),
        evolve=evolve,
        change_feed=change_feed,
        properties=options_of(properties),
        recomputed=True,
    )
    # Whole milliseconds: Spark reads neither fractions nor exponents.
    trigger = f"{max(1, length // timedelta(milliseconds=1))} milliseconds" if length is not None else None
    return _decorator(function, output, trigger=trigger, name=name)


@overload
def view(function: F, /) -> F: ...
@overload
def view(*, name: str | None = ...) -> Callable[[F], F]: ...
def view(function: Any = None, /, *, name: str | None = None) -> Any:
    """A step that others read by its name. It is not stored: each reader runs it.

    >>> import headrace as hr
    >>> @hr.view
    ... def paid_orders(orders):
    ...     return orders.where("paid")
    """
    return _decorator(function, ViewOutput(), name=name)


def to_topic(
    topic: str,
    *,
    key: Names = (),
    value: str | None = None,
    headers: str | None = None,
    order_by: Names = (),
    latency: Latency = "exactly_once",
    mode: Mode | None = None,
    tasks: int = 4,
    expect: Expect | None = None,
    late: Late = "count",
    trigger: str | None = None,
    options: Mapping[str, Any] | None = None,
    name: str | None = None,
) -> Callable[[F], F]:
    """The function's rows are records of a topic, each exactly once; the value is a column, or all of them as JSON.

    `latency="realtime"` uses Spark's real-time trigger instead: milliseconds, from topic to topic, at least once.

    >>> import headrace as hr
    >>> @hr.to_topic("big-orders", key="customer")
    ... def big_orders(clean_orders):
    ...     return clean_orders.where("amount > 1000")
    """
    place = SourceLine.of_caller()
    one_of(place, "latency", latency, ("exactly_once", "realtime"))
    one_of(place, "late", late, LATE)
    if not 1 <= tasks <= TASKS_MAX:
        raise PipelineError(place, f"to_topic {topic!r}: tasks={tasks} is outside [1, {TASKS_MAX}]")
    output = TopicOutput(
        topic=topic,
        key=names_of(key),
        value=value,
        headers=headers,
        order_by=names_of(order_by),
        latency=latency,
        mode=mode_of(place, mode),
        tasks=tasks,
        options=options_of(options),
    )
    if latency == "realtime":
        if expect:
            raise PipelineError(place, f"to_topic {topic!r}: latency='realtime' takes no expectations; drop them")
        if output.order_by:
            raise PipelineError(place, f"to_topic {topic!r}: latency='realtime' cannot sort; drop order_by")
    return _decorator(None, output, expect=expect, trigger=trigger, name=name, late=late)  # type: ignore[no-any-return]


@overload
def for_each_batch(function: F, /) -> F: ...
@overload
def for_each_batch(
    *,
    mode: Mode | None = ...,
    expect: Expect | None = ...,
    trigger: str | None = ...,
    options: Mapping[str, Any] | None = ...,
    name: str | None = ...,
) -> Callable[[F], F]: ...
def for_each_batch(
    function: Any = None,
    /,
    *,
    mode: Mode | None = None,
    expect: Expect | None = None,
    trigger: str | None = None,
    options: Mapping[str, Any] | None = None,
    name: str | None = None,
) -> Any:
    """The function gets each batch of its first argument as a plain DataFrame, and writes it itself.

    Delta writes it makes carry the batch's transaction, so that a batch run again writes nothing twice; one write a
    table and batch. An argument named `batch` gets the batch's id and the paths of this version's tables.

    >>> import headrace as hr
    >>> @hr.for_each_batch
    ... def archived(orders, batch):
    ...     orders.write.format("delta").mode("append").save("archive")
    """
    output = BatchOutput(mode=mode_of(SourceLine.of_caller(), mode))
    return _decorator(function, output, expect=expect, trigger=trigger, options=options, name=name)


def _decorator(function: Any, output: Output, **settings: Any) -> Any:
    def decorate(function: F) -> F:
        node = _node(function, output, **settings)
        function.__dict__[DECLARED] = node
        declared = collected()
        if declared is not None:
            declared.nodes.append(node)
        return function

    return decorate if function is None else decorate(function)


def _node(
    function: Callable[..., Any],
    output: Output,
    *,
    expect: Expect | None = None,
    trigger: str | None = None,
    options: Mapping[str, Any] | None = None,
    name: str | None = None,
    late: Late = "count",
) -> Node:
    code = inspect.unwrap(function).__code__
    place = SourceLine(code.co_filename, code.co_firstlineno)
    name = name or function.__name__
    inputs, defaults, takes_batch = [], {}, False
    for argument in inspect.signature(function).parameters.values():
        if argument.kind in (argument.VAR_POSITIONAL, argument.VAR_KEYWORD, argument.POSITIONAL_ONLY):
            raise PipelineError(place, f"{name}: argument {argument} has no name to look up; name each input")
        if argument.name == BATCH_ARGUMENT and isinstance(output, BatchOutput):
            takes_batch = True
            continue
        if isinstance(argument.default, TopicStream | TableStream | Static):
            defaults[argument.name] = argument.default
        elif argument.default is not argument.empty:
            continue  # an ordinary default: a parameter of the function, not an edge
        inputs.append(argument.name)
    if not inputs:
        raise PipelineError(place, f"{name}: reads nothing; name its inputs as arguments, such as def {name}(orders)")
    return Node(
        name=name,
        function=function,
        inputs=tuple(inputs),
        defaults=MappingProxyType(defaults),
        output=output,
        expectations=expectations_of(place, name, expect) + order_expected(output),
        trigger=trigger,
        options=_query_options(place, name, options),
        place=place,
        takes_batch=takes_batch,
        late=late,
    )


def _query_options(place: SourceLine, node: str, options: Mapping[str, Any] | None) -> Mapping[str, str]:
    made = options_of(options)
    if any(key.lower() == "checkpointlocation" for key in made):
        raise PipelineError(place, f"{node}: checkpointLocation belongs to the version's directory; drop the option")
    return made
