"""How the commands reach a broker: their common options, the connection, and errors in one line with the remedy.

Questions and changes go over the one connection of `client/cluster`; records go through confluent-kafka.
"""

import functools
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.failing import one_line_errors
from headrace.cli.tabling import debug_option, json_option

if TYPE_CHECKING:
    from headrace.client.cluster import ClusterClient

CONNECT_MS_MAX = 2_000  # for the first broker to take a connection; then one line says that none did
REQUEST_MS_MAX = 15_000
EXIT_SHORT = 3  # what was asked for did not come about: too few records, too much lag


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """Where the brokers are and with which settings they are spoken to."""

    bootstrap: str
    properties: Mapping[str, str] = field(default_factory=dict)

    def cluster(self) -> "ClusterClient":
        from headrace.client.cluster import ClusterClient
        from headrace.client.errors import AddressError, ClientError
        from headrace.core.errors import OperatorError

        waits = {"default.api.timeout.ms": str(CONNECT_MS_MAX), "request.timeout.ms": str(REQUEST_MS_MAX)}
        try:
            return ClusterClient(self.bootstrap, {"client.id": "headrace", **waits, **self.properties})
        except AddressError:
            raise click.UsageError(f"--bootstrap {self.bootstrap!r}: write HOST:PORT, such as 127.0.0.1:9092") from None
        except ClientError as error:
            raise OperatorError(decapitalized(str(error).replace("--bootstrap-server", "--bootstrap"))) from error

    def client_settings(self) -> dict[str, str]:
        """For confluent-kafka."""
        return {"bootstrap.servers": self.bootstrap, "client.id": "headrace", **self.properties}


bootstrap_option = click.option(
    "--bootstrap",
    "-b",
    metavar="HOST:PORT",
    envvar="HEADRACE_BOOTSTRAP",
    default="127.0.0.1:9092",
    show_default=True,
    help="The broker or brokers; also $HEADRACE_BOOTSTRAP.",
)
client_option = click.option(
    "--client",
    "client_file",
    metavar="FILE",
    envvar="HEADRACE_CLIENT",
    type=click.Path(dir_okay=False),
    help="Settings of the client (TLS, SASL, …) as Kafka's .properties; also $HEADRACE_CLIENT.",
)
setting_option = click.option(
    "-X", "pairs", metavar="KEY=VALUE", multiple=True, help="One setting of the client; may be given many times."
)


def broker_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """--bootstrap, --client, -X, --json and --debug, which the command gets as `reach` and `as_json`.

    It must be the innermost decorator: it also turns every way to fail into one line and an exit code.
    """

    @functools.wraps(function)
    def run(
        *, bootstrap: str, client_file: str | None, pairs: tuple[str, ...], as_json: bool, debug: bool, **given: Any
    ) -> Any:
        with one_line_errors(debug), _plain_words():
            return function(reach=reach_of(bootstrap, client_file, pairs), as_json=as_json, **given)

    command: Callable[..., Any] = run
    for option in (debug_option, json_option, setting_option, client_option, bootstrap_option):
        command = option(command)
    return command


def reach_of(bootstrap: str, client_file: str | None, pairs: tuple[str, ...]) -> Reach:
    for pair in pairs:
        if not pair.partition("=")[0] or "=" not in pair:
            raise click.UsageError(f"-X {pair!r}: write KEY=VALUE, such as security.protocol=SSL")
    from headrace.client.properties import gathered

    return Reach(bootstrap=bootstrap, properties=gathered(client_file, pairs))


@contextmanager
def _plain_words() -> Iterator[None]:
    """Errors of brokers and of the client library as errors of ours, so that they end in one line."""
    from headrace.core.errors import HeadraceError, OperatorError

    try:
        yield
    except (HeadraceError, click.ClickException, click.exceptions.Exit, click.Abort, OSError):
        raise
    except Exception as error:
        library = sys.modules.get("confluent_kafka")  # if it was never loaded, it is not to blame
        if library is None or not isinstance(error, library.KafkaException):
            raise
        raise OperatorError(kafka_text(error.args[0])) from error


def kafka_text(error: Any) -> str:
    """confluent-kafka's error as a person reads it."""
    from confluent_kafka import KafkaError

    known = {
        KafkaError._TRANSPORT: "the connection to the broker broke; is it still running?",
        KafkaError._ALL_BROKERS_DOWN: "no broker answers any more; start it again, or correct --bootstrap",
        KafkaError._TIMED_OUT: "the broker did not answer in time; see its log",
        KafkaError._MSG_TIMED_OUT: "the broker did not confirm it in time; is it still running?",
    }
    return known.get(error.code()) or decapitalized(error.str() if hasattr(error, "str") else str(error))


def decapitalized(text: str) -> str:
    first, _, _ = text.partition(" ")
    return text[:1].lower() + text[1:] if first[1:].islower() or len(first) == 1 else text


def in_colour() -> bool:
    """Whether what is printed may have colours: on a terminal only, unless NO_COLOR says otherwise."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def on_terminal() -> bool:
    """Whether a person sees progress: it is shown on stderr, so that stdout stays clean."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def setting_pairs(texts: Iterable[str], flag: str = "--set") -> dict[str, str]:
    from headrace.core.errors import OperatorError

    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise OperatorError(f"{flag} {text!r}: write KEY=VALUE, such as retention.ms=3600000")
        found[key.strip()] = value.strip()
    return found
