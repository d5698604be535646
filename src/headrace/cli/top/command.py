"""`headrace top`: the whole screen, live. What it shows is asked for on threads; the screen never waits."""

from typing import TYPE_CHECKING

import click

from headrace.cli.reaching import broker_options

if TYPE_CHECKING:
    from headrace.cli.reaching import Reach


@click.command(short_help="Everything at a glance, live on the whole screen.")
@click.option("--interval", type=click.FloatRange(0.2), default=2.0, show_default=True, metavar="S", help="How often.")
@click.option("--internal", is_flag=True, help="Also the topics that brokers keep for themselves.")
@broker_options
def top(interval: float, internal: bool, reach: "Reach", as_json: bool) -> None:
    """Brokers, topics with their rates, groups with their lag: live on the whole screen.

    Keys: tab and arrows move, enter looks into a topic's messages or a group's members, escape goes back, / filters,
    s sorts, i shows internal topics, p pauses, q quits. With --json one look is printed, for scripts.

    \b
    Examples:
      headrace top
      headrace top --bootstrap kafka1:9092 --interval 5
      headrace top --json
    """
    import sys
    import time

    from headrace.core.errors import OperatorError

    if as_json:
        from dataclasses import asdict

        from headrace.cli.tabling import print_json
        from headrace.client.look import look

        with reach.cluster() as cluster:
            found = asdict(look(cluster, time.monotonic()))
        for name in ("brokers", "topics", "groups"):
            found[name] = [each._asdict() for each in found[name]]
        print_json({key: value for key, value in found.items() if key not in ("at", "ends")})
        return
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise OperatorError("top needs a terminal; use --json for one look, or `headrace group lag --watch`")
    try:
        from headrace.cli.top.app import TopApp
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith(("textual", "rich")):
            raise
        raise OperatorError("top needs Textual; install it with: pip install 'headrace[tui]'") from error
    from headrace.cli.top.source import ClusterSource

    reach.cluster().__exit__()  # no broker: one line, before the screen is taken
    TopApp(ClusterSource(reach), interval_s=interval, internal=internal).run()
