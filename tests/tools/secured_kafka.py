"""An Apache Kafka with a login and with TLS, and the settings files that clients of it have.

Headrace's own broker has neither yet; the tools must reach brokers that do. One such Kafka serves all tests: it takes
some seconds to start.
"""

from __future__ import annotations

import socket
import subprocess
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from java import JavaTools
from ports import reserved_ports
from waits import WAIT_S_MAX

USER, PASSWORD, SCRAM_PASSWORD = "alice", 'se=cret"; 1', "scram-secret"
STORE_PASSWORD = "store-secret"
LISTENERS = ("SASL_PLAINTEXT", "SSL", "SASL_SSL", "CONTROLLER")
_KEY = ("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2")


def login(module: str, password: str, *more: str) -> str:
    """A line for `sasl.jaas.config`; `module` is `plain.Plain` or `scram.Scram`."""
    quoted = password.replace('"', '\\"')
    words = (f'username="{USER}"', f'password="{quoted}"', *more)
    return f"org.apache.kafka.common.security.{module}LoginModule required {' '.join(words)};"


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificates:
    """An authority of our own, the broker's key that it signed, and the authority in every format that clients use."""

    server: Path  # PEM: key and certificate
    authority: Path  # PEM
    stranger: Path  # PEM: another authority, which has signed nothing here
    jks: Path
    pkcs12: Path
    client: Path  # PEM: a client's key and certificate
    client_pkcs12: Path


def make_certificates(directory: Path) -> Certificates:
    directory.mkdir(parents=True, exist_ok=True)
    for name in ("authority", "stranger"):
        subject = ("-subj", f"/CN=Headrace tests {name}")
        _run(directory, "openssl", *_KEY, *subject, "-keyout", f"{name}.key", "-out", f"{name}.pem")
    signed = ("-CA", "authority.pem", "-CAkey", "authority.key", "-subj", "/CN=127.0.0.1")
    named = ("-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE")
    for name in ("server", "client"):
        _run(directory, "openssl", *_KEY, *signed, *named, "-keyout", f"{name}.key", "-out", f"{name}.crt")
        whole = (directory / f"{name}.key").read_text() + (directory / f"{name}.crt").read_text()
        (directory / f"{name}.pem").write_text(whole)
    exported = ("-export", "-in", "client.pem", "-out", "client.pkcs12", "-passout", f"pass:{STORE_PASSWORD}")
    _run(directory, "openssl", "pkcs12", *exported)
    for kind in ("JKS", "PKCS12"):
        store = ("-storetype", kind, "-storepass", STORE_PASSWORD, "-keystore", f"trust.{kind.lower()}")
        _run(directory, "keytool", "-importcert", "-noprompt", *store, "-alias", "ours", "-file", "authority.pem")
    return Certificates(
        server=directory / "server.pem",
        authority=directory / "authority.pem",
        stranger=directory / "stranger.pem",
        jks=directory / "trust.jks",
        pkcs12=directory / "trust.pkcs12",
        client=directory / "client.pem",
        client_pkcs12=directory / "client.pkcs12",
    )


class SecuredKafka:
    """`with SecuredKafka(java, directory) as kafka: kafka.address("SSL")`"""

    def __init__(self, java: JavaTools, directory: Path) -> None:
        self.directory = directory
        self.certificates = make_certificates(directory / "certificates")
        self._stack = ExitStack()
        ports = self._stack.enter_context(reserved_ports(len(LISTENERS)))
        self._ports = dict(zip(LISTENERS, ports, strict=True))
        self._settings = directory / "server.properties"
        self._settings.write_text(self._server_properties())
        user = f"SCRAM-SHA-256=[name={USER},password={SCRAM_PASSWORD}]"
        formatted = java.run(
            "kafka.tools.StorageTool",
            "format",
            "-t",
            "AAAAAAAAAAAAAAAAAAAAAQ",
            "-c",
            self._settings,
            "--add-scram",
            user,
        )
        assert formatted.exit == 0, formatted
        self._log = open(directory / "server.log", "wb")  # noqa: SIM115 - closed when the broker has ended
        self._process = subprocess.Popen(
            [*java.command("kafka.Kafka"), str(self._settings)],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
        )

    def address(self, listener: str) -> str:
        return f"127.0.0.1:{self._ports[listener]}"

    def __enter__(self) -> SecuredKafka:
        deadline = time.monotonic() + WAIT_S_MAX
        for listener in LISTENERS:
            while True:
                try:
                    socket.create_connection(("127.0.0.1", self._ports[listener]), 1).close()
                    break
                except OSError:
                    said = (self.directory / "server.log").read_text()[-2000:]
                    assert self._process.poll() is None, f"Apache Kafka ended:\n{said}"
                    assert time.monotonic() < deadline, f"no {listener} within {WAIT_S_MAX:g} s:\n{said}"
                    time.sleep(0.05)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()
        self._stack.close()

    def _server_properties(self) -> str:
        listeners = ",".join(f"{name}://{self.address(name)}" for name in LISTENERS)
        user = PASSWORD.replace('"', '\\\\"')  # once for the properties, once for JAAS
        settings = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@{self.address('CONTROLLER')}",
            "controller.listener.names": "CONTROLLER",
            "listeners": listeners,
            "advertised.listeners": listeners.rpartition(",")[0],
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT," + ",".join(f"{n}:{n}" for n in LISTENERS[:-1]),
            "inter.broker.listener.name": "SSL",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self.certificates.server,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.certificates.authority,
            "listener.name.sasl_ssl.ssl.client.auth": "required",
            "log.dirs": self.directory / "logs",
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "group.initial.rebalance.delay.ms": 0,
        }
        for listener in ("sasl_plaintext", "sasl_ssl"):
            at = f"listener.name.{listener}."
            plain = login("plain.Plain", "unused", f'user_{USER}="{user}"')
            settings[f"{at}plain.sasl.jaas.config"] = plain
            settings[f"{at}scram-sha-256.sasl.jaas.config"] = login("scram.Scram", "unused")
        return "".join(f"{key}={value}\n" for key, value in settings.items())


def _run(directory: Path, *command: str) -> None:
    subprocess.run(command, cwd=directory, check=True, capture_output=True, timeout=WAIT_S_MAX)
