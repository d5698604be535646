"""`headrace broker server.properties`: one broker in the foreground, configured by Kafka's own file."""

import click

from headrace.cli.running import logging_options, setting_flags
from headrace.cli.serving import run


@click.command()
@click.argument("properties", metavar="SERVER.PROPERTIES", type=click.Path())
@click.option(
    "--override",
    "pairs",
    metavar="KEY=VALUE",
    multiple=True,
    help="A setting that wins over the file's; may be given many times.",
)
@logging_options
def broker(properties: str, pairs: tuple[str, ...], log_level: str, log_format: str, debug: bool) -> None:
    """Start one broker from Kafka's own configuration file."""
    with run(log_level, log_format, debug) as runner:
        text = runner.read(properties)
        runner.serve(flags=setting_flags("--override", pairs), properties=text, source=properties)
