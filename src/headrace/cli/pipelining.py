"""What the `headrace pipeline` commands have in common: options, and finding the pipeline that is meant."""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from headrace.cli.reaching import bootstrap_option
from headrace.cli.tabling import debug_option, tables_option

if TYPE_CHECKING:
    from headrace.streaming.run_settings import RunSettings
    from headrace.tables.catalog import Catalog

_Command = TypeVar("_Command", bound=Callable[..., Any])

master_option = click.option(
    "--master",
    metavar="URL",
    envvar="HEADRACE_MASTER",
    default="local[*]",
    show_default=True,
    help="Where Spark runs: local[*], local[4], or spark://HOST:PORT.",
)
conf_option = click.option(
    "--conf", "confs", multiple=True, metavar="KEY=VALUE", help="Any setting of Spark, or of Kafka as kafka.KEY=VALUE."
)


def run_options(command: _Command) -> _Command:
    """--tables, --bootstrap, --master, --conf and --debug."""
    for option in (debug_option, conf_option, master_option, bootstrap_option, tables_option):
        command = option(command)
    return command


def settings_of(tables_dir: str, bootstrap: str, master: str, confs: tuple[str, ...], **more: Any) -> "RunSettings":
    from headrace.streaming.run_settings import RunSettings
    from headrace.streaming.settings import SparkSettings

    pairs = {}
    for conf in confs:
        key, equals, value = conf.partition("=")
        if not equals or not key:
            raise click.UsageError(f"--conf {conf!r}: write KEY=VALUE, such as spark.driver.memory=2g")
        pairs[key] = value
    spark = {key: value for key, value in pairs.items() if not key.startswith("kafka.")}
    kafka = {key: value for key, value in pairs.items() if key.startswith("kafka.")}
    return RunSettings(
        tables_dir=tables_dir, bootstrap=bootstrap, kafka=kafka, spark=SparkSettings(master=master, extra=spark), **more
    )


def find_catalog(given: str | None, tables_dir: str) -> "Catalog":
    """By name, by file, or the only one there is."""
    import difflib

    from headrace.core.errors import OperatorError
    from headrace.tables.catalog import Catalog, pipelines

    known = pipelines(tables_dir)
    if given is None:
        if len(known) == 1:
            return Catalog.open(tables_dir, known[0])
        what = f"there are several: {', '.join(known)}; name one" if known else "none has run there yet"
        raise OperatorError(f"{tables_dir}: {what}")
    if given in known:
        return Catalog.open(tables_dir, given)
    stem = os.path.splitext(os.path.basename(given))[0]
    if os.path.isfile(given):
        name = stem if stem in known else _name_in(given)
        if name in known:
            return Catalog.open(tables_dir, name)
        raise OperatorError(f"{given}: the pipeline {name!r} has not run in {tables_dir} yet; run it first")
    near = difflib.get_close_matches(given, known, n=1)
    hint = f"; did you mean {near[0]}?" if near else f"; there are: {', '.join(known) or 'none'}"
    raise OperatorError(f"{given}: no such file, and no pipeline of that name in {tables_dir}{hint}")


def _name_in(file: str) -> str:
    from headrace.streaming.loading import load

    return load(file).pipeline
