"""How the commands reach a keeper: their common options, the client, and errors in one line."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.failing import one_line_errors
from headrace.cli.tabling import debug_option, json_option

if TYPE_CHECKING:
    from headrace.client.zookeeper.blocking import BlockingClient
    from headrace.client.zookeeper.events import StateChanged

TIMEOUT_MS = 10_000  # of the session; a server that takes the connection and says nothing is waited for so long


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """Where it is, and who we are to it."""

    connect: str
    auth: str | None = None

    def client(self, on_state: "Callable[[StateChanged], None] | None" = None) -> "BlockingClient":
        """Connected, or an error that says why not."""
        from headrace.client.errors import AddressError
        from headrace.client.zookeeper.blocking import BlockingClient
        from headrace.client.zookeeper.errors import ZooKeeperError
        from headrace.core.errors import OperatorError

        try:
            client = BlockingClient(self.connect, timeout_ms=TIMEOUT_MS, on_state=on_state)
        except AddressError as error:
            raise click.UsageError(f"--server {error}") from None
        if self.auth is not None:
            client.add_credentials("digest", self.auth.encode())
        try:
            client.exists("/")
        except ZooKeeperError as error:
            why = client.why
            client.abandon()
            raise OperatorError(
                f"no ZooKeeper answers at {client.connect_string.named} ({why}); start one, for example with"
                " `headrace keeper`, or correct --server"
            ) from error
        return client


def server_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """--server, --auth, --json and --debug, which the command gets as `server` and `as_json`.

    It must be the innermost decorator: it also turns every way to fail into one line and an exit code.
    """

    @functools.wraps(function)
    def run(*, connect: str, auth: str | None, as_json: bool, debug: bool, **given: Any) -> Any:
        if auth is not None and ":" not in auth:
            raise click.UsageError("--auth: write USER:PASSWORD")
        with one_line_errors(debug):
            return function(server=Server(connect=connect, auth=auth), as_json=as_json, **given)

    command: Callable[..., Any] = run
    for option in (
        debug_option,
        json_option,
        click.option("--auth", metavar="USER:PASSWORD", help="Who you are, for nodes with an ACL (digest)."),
        click.option(
            "--server",
            "-s",
            "connect",
            metavar="HOST:PORT",
            envvar="HEADRACE_KEEPER",
            default="127.0.0.1:2181",
            show_default=True,
            help="The keeper; or HOST:PORT,HOST:PORT/PATH, as ZooKeeper has it. Also $HEADRACE_KEEPER.",
        ),
    ):
        command = option(command)
    return command


def shown_path(context: click.Context, parameter: click.Parameter, path: str) -> str:
    """A path as people write it: a `/` in front may be missing, one at the end is too much."""
    return "/" + path.strip("/")


path_argument = click.argument("path", default="/", callback=shown_path)
