"""`headrace pipeline check FILE`: graph, schemas, and what each node reads and writes, before anything runs.

What needs no JVM comes first: the file, the graph, names, quotes and brackets of SQL. Spark starts only when all of
that is well, and not at all with --no-spark.
"""

from typing import TYPE_CHECKING, Any

import click

from headrace.cli.failing import one_line_errors
from headrace.cli.pipeline.options import RunOptions, run_options
from headrace.cli.preparing import prepare, timed
from headrace.cli.tabling import json_option, print_json

if TYPE_CHECKING:
    from headrace.streaming.check import CheckedNode
    from headrace.streaming.outline import OutlinedNode

STARTING = "the graph is sound; starting Spark to analyse the plans (--no-spark skips this)"


@click.command(short_help="Graph and schemas, before anything runs.")
@click.argument("file")
@click.option("--no-spark", is_flag=True, help="End before Spark starts: columns, schemas and modes are not checked.")
@json_option
@run_options
def check(
    file: str,
    no_spark: bool,
    as_json: bool,
    options: RunOptions,
) -> None:
    """Checks a pipeline's FILE: names, expectations, schemas, output modes. Errors name the file and the line.

    The file, its graph and the names in it are checked first, without a JVM. Then Spark starts and analyses the plans;
    no job runs, and no broker is needed unless the schema of a topic has to be inferred.
    """
    with one_line_errors(options.debug):
        from headrace.streaming.launching import open_pipeline
        from headrace.streaming.outline import check_tables, outline
        from headrace.streaming.progress import counted

        _, graph = open_pipeline(file)
        settings = options.settings()
        check_tables(graph, settings.tables_dir)
        if no_spark:
            nodes = outline(graph)
            if as_json:
                print_json(_content(graph.pipeline, [_outlined(node) for node in nodes], analysed=False))
                return
            size = counted(len(nodes), "node")
            click.echo(f"{graph.pipeline}: {size}, the graph is sound; columns and modes are not checked")
            for node in nodes:
                _print_node(node)
            return
        click.echo(STARTING, err=True)
        from headrace.streaming.operation import check_file

        step = timed(lambda line: click.echo(line, err=True))
        prepare(step)
        checked = check_file(graph, settings, say=step)
        if as_json:
            print_json(_content(checked.pipeline, [_checked(node) for node in checked.nodes], analysed=True))
            return
        click.echo(f"{checked.pipeline}: {counted(len(checked.nodes), 'node')}, all well")
        for each in checked.nodes:
            columns = ", ".join(f"{column.name} {column.dataType.simpleString()}" for column in each.schema.fields)
            _print_node(each, mode=f" ({each.mode} mode)", columns=columns)


def _content(pipeline: str, nodes: list[dict[str, Any]], *, analysed: bool) -> dict[str, Any]:
    return {"pipeline": pipeline, "analysed": analysed, "nodes": nodes}


def _outlined(node: "OutlinedNode") -> dict[str, Any]:
    return {
        "name": node.name,
        "reads": list(node.reads),
        "writes": node.writes,
        "mode": None,
        "schema": None,
        "notes": list(node.notes),
    }


def _checked(node: "CheckedNode") -> dict[str, Any]:
    return {**_outlined(node), "mode": node.mode, "schema": node.schema.jsonValue()}


def _print_node(node: "OutlinedNode", *, mode: str = "", columns: str = "") -> None:
    click.echo(f"\n{node.name}")
    click.echo(f"  reads   {', '.join(node.reads)}")
    click.echo(f"  writes  {node.writes}{mode}")
    if columns:
        click.echo(f"  columns {columns}")
    for note in node.notes:
        click.echo(f"  note    {note}")
