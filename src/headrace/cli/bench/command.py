"""`headrace bench`: how fast a broker is from here, with rates while it runs and percentiles at the end."""

import click

from headrace.cli.lazy_group import CommandEntry, LazyGroup

COMMANDS = {
    "produce": CommandEntry("headrace.cli.bench.produce:produce", "Records per second in, and how long each takes."),
    "consume": CommandEntry("headrace.cli.bench.consume:consume", "Records per second out."),
    "latency": CommandEntry("headrace.cli.bench.latency:latency", "From one client to another, one record at a time."),
}


@click.group(cls=LazyGroup, places=COMMANDS, short_help="How fast it is: produce, consume, latency.")
def bench() -> None:
    """How fast a broker is from here.

    Without --topic a topic is made for it and deleted at the end. One Python process drives each of these, so a broker
    may well be faster than what one of them shows.
    """
