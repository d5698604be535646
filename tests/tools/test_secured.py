"""The tools against an Apache Kafka that asks for a login, for TLS, or for both, with settings in Java's names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from java import JavaTools
from secured_kafka import PASSWORD, SCRAM_PASSWORD, STORE_PASSWORD, SecuredKafka, login
from tool_process import Ran, run
from topic_setup import fresh_name
from waits import NEVER_MS, WAIT_MS_MAX

PLAIN = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
SCRAM = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256"}
STORES = {"ssl.truststore.password": STORE_PASSWORD}
# A tool that tries again, or waits for what will not come, does so for longer than `run` lets it.
PATIENT = dict.fromkeys(("default.api.timeout.ms", "delivery.timeout.ms"), NEVER_MS)


@pytest.fixture(scope="module")
def kafka(java: JavaTools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    with SecuredKafka(java, tmp_path_factory.mktemp("secured")) as running:
        yield running


class User:
    """Someone with a broker's address and a file of settings."""

    def __init__(self, bootstrap: str, file: Path, settings: Mapping[str, object]) -> None:
        self.bootstrap = bootstrap
        self.file = file
        escaped = {key: str(value).replace("\\", "\\\\").replace("\n", "\\n") for key, value in settings.items()}
        file.write_text("".join(f"{key}={value}\n" for key, value in escaped.items()))

    def headrace(self, *args: object, stdin: str = "") -> Ran:
        return run("headrace", *args, "-b", self.bootstrap, "--client", self.file, stdin=stdin)

    def tool(self, name: str, *args: object, config: str = "--command-config", stdin: str = "") -> Ran:
        return run(name, "--bootstrap-server", self.bootstrap, config, self.file, *args, stdin=stdin)


UserOf = Callable[..., User]


@pytest.fixture
def user_of(kafka: SecuredKafka, tmp_path: Path) -> UserOf:
    def make(name: str, **more: object) -> User:
        listener, settings = settings_of(kafka)[name]
        return User(kafka.address(listener), tmp_path / f"{name}.properties", settings | more)

    return make


def settings_of(kafka: SecuredKafka) -> dict[str, tuple[str, dict[str, object]]]:
    """Listener and settings, by what is special about them."""
    held = kafka.certificates
    plain = PLAIN | {"sasl.jaas.config": login("plain.Plain", PASSWORD)}
    scram = SCRAM | {"sasl.jaas.config": login("scram.Scram", SCRAM_PASSWORD)}
    tls = {"security.protocol": "SSL"}
    pem = {"ssl.truststore.type": "PEM", "ssl.truststore.location": held.authority}
    both = scram | pem | {"security.protocol": "SASL_SSL"}
    own = {"ssl.keystore.type": "PEM", "ssl.keystore.location": held.client}
    own_store = {"ssl.keystore.location": held.client_pkcs12, "ssl.keystore.password": STORE_PASSWORD}
    inline = " ".join(held.authority.read_text().splitlines())  # Java takes it without its ends of lines, too
    return {
        "plain": ("SASL_PLAINTEXT", plain),
        "scram": ("SASL_PLAINTEXT", scram),
        "pem": ("SSL", tls | pem),
        "inline": ("SSL", tls | {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": inline}),
        "jks": ("SSL", tls | STORES | {"ssl.truststore.location": held.jks}),
        "pkcs12": ("SSL", tls | STORES | {"ssl.truststore.type": "PKCS12", "ssl.truststore.location": held.pkcs12}),
        "own key": ("SASL_SSL", both | own),
        "own key in pkcs12": ("SASL_SSL", both | own_store),
        "wrong password": ("SASL_PLAINTEXT", plain | {"sasl.jaas.config": login("plain.Plain", "wrong")}),
        "wrong scram password": ("SASL_PLAINTEXT", scram | {"sasl.jaas.config": login("scram.Scram", "wrong")}),
        "other mechanism": ("SASL_PLAINTEXT", scram | {"sasl.mechanism": "SCRAM-SHA-512"}),
        "unknown authority": ("SSL", tls | {"ssl.truststore.location": held.stranger}),
        "wrong store password": ("SSL", tls | {"ssl.truststore.location": held.pkcs12, "ssl.truststore.password": "x"}),
        "no own key": ("SASL_SSL", both),
        "plaintext to tls": ("SSL", {}),
        "plaintext to a login": ("SASL_PLAINTEXT", {}),
        "tls to plaintext": ("SASL_PLAINTEXT", tls | pem),
    }


@pytest.mark.parametrize("name", ["plain", "pem"])
def test_every_command_works(user_of: UserOf, name: str) -> None:
    user, topic, group = user_of(name), fresh_name("secured"), fresh_name("group")

    def done(ran: Ran) -> list[str]:
        assert ran.exit == 0, ran
        return ran.lines

    assert done(user.headrace("topic", "create", topic)) == [f"topic {topic} made"]
    assert topic in "\n".join(done(user.headrace("topic", "list")))
    done(user.headrace("produce", topic, stdin="one\ntwo\n"))
    assert done(user.headrace("consume", topic, "-n", 2, "--group", group)) == ["one", "two"]
    assert group in "\n".join(done(user.headrace("group", "list")))
    assert topic in "\n".join(done(user.headrace("group", "describe", group)))
    assert f"Topic: {topic}\t" in done(user.tool("kafka-topics.sh", "--describe", "--topic", topic))[0]
    assert group in done(user.tool("kafka-consumer-groups.sh", "--list"))
    producer = ("kafka-console-producer.sh", "--topic", topic)
    done(user.tool(*producer, config="--producer.config", stdin="three\n"))
    done(user.tool(*producer, stdin="four\n"))
    consumer = ("kafka-console-consumer.sh", "--topic", topic, "--from-beginning", "--timeout-ms", WAIT_MS_MAX)
    for config in ("--consumer.config", "--command-config"):
        assert done(user.tool(*consumer, "--max-messages", 4, config=config)) == ["one", "two", "three", "four"]


@pytest.mark.parametrize("name", ["scram", "inline", "jks", "pkcs12", "own key", "own key in pkcs12"])
def test_each_kind_of_login_and_store_is_understood_by_both_clients(user_of: UserOf, name: str) -> None:
    """Ours, which administers, and librdkafka, which carries the records."""
    user, topic = user_of(name), fresh_name("secured")
    created = user.tool("kafka-topics.sh", "--create", "--topic", topic)
    assert created.lines == [f"Created topic {topic}."], created
    sent = user.tool("kafka-console-producer.sh", "--topic", topic, stdin="one\n")
    assert (sent.exit, sent.err) == (0, "")
    read = user.headrace("consume", topic, "-n", 1)
    assert (read.exit, read.lines) == (0, ["one"]), read


REFUSALS = {
    "wrong password": "authentication failed: Invalid username or password",
    "wrong scram password": "invalid credentials with SASL mechanism SCRAM-SHA-256",
    "other mechanism": "SASL mechanism 'SCRAM-SHA-512' not enabled; enabled are PLAIN, SCRAM-SHA-256",
    "unknown authority": "its certificate is not trusted (unable to get local issuer certificate); set "
    "ssl.truststore.location to the certificate of the authority that signed it",
    "wrong store password": "invalid password?); is ssl.truststore.password right?",
    "no own key": "did not accept this client's certificate; set ssl.keystore.location",
    "plaintext to tls": "speaks TLS; set security.protocol=SSL, or SASL_SSL if it asks for a login",
    "plaintext to a login": "closed the connection before it answered; does it ask for a login",
    "tls to plaintext": "does not speak TLS; is that the right port, and security.protocol the right one?",
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_is_refused_is_said_in_one_line_and_at_once(user_of: UserOf, name: str) -> None:
    user = user_of(name, **PATIENT)
    reading = ("--topic", "any", "--from-beginning", "--max-messages", 1)
    for ran in (
        user.headrace("produce", "any", stdin="lost?\n"),
        user.tool("kafka-topics.sh", "--list"),
        user.tool("kafka-console-producer.sh", "--topic", "any", stdin="lost?\n"),
        user.tool("kafka-console-consumer.sh", *reading),
    ):
        assert ran.exit == 1, ran
        (line,) = (ran.err + ran.out).splitlines()
        assert REFUSALS[name].lower() in line.lower()
