"""What the `headrace pipeline` commands have in common: options, and finding the pipeline that is meant."""

import functools
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from headrace.cli.reaching import bootstrap_option
from headrace.cli.tabling import debug_option, tables_option

if TYPE_CHECKING:
    from headrace.streaming.run_settings import RunSettings
    from headrace.tables.catalog import PipelineCatalog
    from headrace.tables.versions import Version

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


metrics_port_option = click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    default=None,
    metavar="PORT",
    help="Port for Prometheus at /metrics, and for /health; 0 takes a free one.  [default: none]",
)
metrics_host_option = click.option(
    "--metrics-host", default="127.0.0.1", show_default=True, metavar="HOST", help="Address of that port."
)
lineage_option = click.option(
    "--lineage", default=None, metavar="FILE|URL", help="Where to write OpenLineage events: a file, or a URL."
)


def watch_options(command: _Command) -> _Command:
    """--metrics-port, --metrics-host and --lineage: what a run tells others while it runs."""
    for option in (lineage_option, metrics_host_option, metrics_port_option):
        command = option(command)
    return command


class RunOptions(NamedTuple):
    """Where a run reads, computes and writes."""

    tables_dir: str
    bootstrap: str
    master: str
    confs: tuple[str, ...]
    debug: bool

    def settings(self, **more: Any) -> "RunSettings":
        from headrace.streaming.run_settings import RunSettings
        from headrace.streaming.settings import SparkSettings

        pairs = _pairs(self.confs)
        return RunSettings(
            tables_dir=self.tables_dir,
            bootstrap=self.bootstrap,
            kafka={key: value for key, value in pairs.items() if key.startswith("kafka.")},
            spark=SparkSettings(
                master=self.master,
                extra={key: value for key, value in pairs.items() if not key.startswith("kafka.")},
            ),
            **more,
        )


def run_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """--tables, --bootstrap, --master, --conf and --debug: the command gets them as `options`."""

    @functools.wraps(command)
    def taken(**given: Any) -> Any:
        options = RunOptions(**{name: given.pop(name) for name in RunOptions._fields})
        return command(options=options, **given)

    for option in (debug_option, conf_option, master_option, bootstrap_option, tables_option):
        taken = option(taken)
    return taken


def _pairs(confs: tuple[str, ...]) -> dict[str, str]:
    pairs = {}
    for conf in confs:
        key, equals, value = conf.partition("=")
        if not equals or not key:
            raise click.UsageError(f"--conf {conf!r}: write KEY=VALUE, such as spark.driver.memory=2g")
        pairs[key] = value
    return pairs


def find_catalog(given: str | None, tables_dir: str) -> "PipelineCatalog":
    """By name, by file, or the only one there is."""
    import difflib

    from headrace.core.errors import OperatorError
    from headrace.tables.catalog import PipelineCatalog, pipelines

    known = pipelines(tables_dir)
    if given is None:
        if len(known) == 1:
            return PipelineCatalog.open(tables_dir, known[0])
        what = f"there are several: {', '.join(known)}; name one" if known else "none has run there yet"
        raise OperatorError(f"{tables_dir}: {what}")
    if given in known:
        return PipelineCatalog.open(tables_dir, given)
    stem = os.path.splitext(os.path.basename(given))[0]
    if os.path.isfile(given):
        name = stem if stem in known else _name_in(given)
        if name in known:
            return PipelineCatalog.open(tables_dir, name)
        raise OperatorError(f"{given}: the pipeline {name!r} has not run in {tables_dir} yet; run it first")
    near = difflib.get_close_matches(given, known, n=1)
    hint = f"; did you mean {near[0]}?" if near else f"; there are: {', '.join(known) or 'none'}"
    raise OperatorError(f"{given}: no such file, and no pipeline of that name in {tables_dir}{hint}")


def newest_beside(catalog: "PipelineCatalog") -> "Version":
    """The newest that is not live."""
    from headrace.core.errors import OperatorError

    found = [version for version in catalog.versions if version.state in ("building", "retired")]
    if not found:
        raise OperatorError(f"{catalog.pipeline}: has no version beside the live one; build one with replay")
    return max(found, key=lambda version: version.number)


def _name_in(file: str) -> str:
    from headrace.streaming.loading import load

    return load(file).pipeline
