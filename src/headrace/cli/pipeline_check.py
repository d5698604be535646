"""`headrace pipeline check FILE`: graph, schemas, and what each node reads and writes, before anything runs."""

import click

from headrace.cli.pipelining import run_options, settings_of
from headrace.cli.preparing import prepare, timed
from headrace.cli.tabling import json_option, one_line_errors, print_json


@click.command(short_help="Graph and schemas, before anything runs.")
@click.argument("file")
@json_option
@run_options
def check(
    file: str, as_json: bool, tables_dir: str, bootstrap: str, master: str, confs: tuple[str, ...], debug: bool
) -> None:
    """Checks a pipeline's FILE: names, expectations, schemas, output modes. No Spark job runs, and no broker is
    needed unless the schema of a topic has to be inferred. Errors name the file and the line."""
    with one_line_errors(debug):
        from headrace.streaming.launching import open_pipeline
        from headrace.streaming.operation import check_file

        _, graph = open_pipeline(file)  # what needs no Spark is said at once
        settings = settings_of(tables_dir, bootstrap, master, confs)
        step = timed(lambda line: click.echo(line, err=True))
        prepare(step)
        checked = check_file(graph, settings, say=step)
        if as_json:
            print_json(
                {
                    "pipeline": checked.pipeline,
                    "nodes": [
                        {
                            "name": node.name,
                            "reads": list(node.reads),
                            "writes": node.writes,
                            "mode": node.mode,
                            "schema": node.schema.jsonValue(),
                            "notes": list(node.notes),
                        }
                        for node in checked.nodes
                    ],
                }
            )
            return
        click.echo(f"{checked.pipeline}: {len(checked.nodes)} nodes, all well")
        for node in checked.nodes:
            click.echo(f"\n{node.name}")
            click.echo(f"  reads   {', '.join(node.reads)}")
            click.echo(f"  writes  {node.writes} ({node.mode} mode)")
            columns = [f"{column.name} {column.dataType.simpleString()}" for column in node.schema.fields]
            click.echo(f"  columns {', '.join(columns)}")
            for note in node.notes:
                click.echo(f"  note    {note}")
