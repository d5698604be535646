"""`headrace up`: one broker in the foreground, with nothing to configure."""

import click

from headrace.cli.running import logging_options, setting_flags
from headrace.cli.serving import run


@click.command()
@click.option("--host", metavar="H", help="Address to listen on.  [default: 127.0.0.1]")
@click.option("--port", metavar="P", type=click.IntRange(0, 65535), help="Port; 0 picks a free one.  [default: 9092]")
@click.option("--data", metavar="DIR", type=click.Path(), help="Where the data is kept.  [default: ./headrace-data]")
@click.option(
    "--metrics-port",
    metavar="N",
    type=click.IntRange(-1, 65535),
    help="Serve /metrics and /health on this port; 0 picks a free one.  [default: off]",
)
@click.option(
    "--set",
    "pairs",
    metavar="KEY=VALUE",
    multiple=True,
    help="Any setting by its Kafka name, such as num.partitions=3; may be given many times.",
)
@logging_options
def up(
    host: str | None,
    port: int | None,
    data: str | None,
    metrics_port: int | None,
    pairs: tuple[str, ...],
    log_level: str,
    log_format: str,
    debug: bool,
) -> None:
    """Start one broker in the foreground.

    Every setting can also come from the environment: HEADRACE_NUM_PARTITIONS=3.
    """
    values = {"host": host, "port": port, "log_dirs": (data,) if data else None, "metrics_port": metrics_port}
    with run(log_level, log_format, debug) as runner:
        runner.serve(
            flags=setting_flags("--set", pairs),
            values={name: value for name, value in values.items() if value is not None},
        )
