"""TLS and SASL for the connections that administer: PLAIN and SCRAM, certificates in PEM.

What produces and consumes has librdkafka's own; here is what the settings of `--command-config` need for the rest.
Kerberos and OAuth are refused, with a line that says so.
"""

import base64
import hashlib
import hmac
import os
import socket
import ssl
from collections.abc import Mapping

from headrace.cli.kafka.client_settings import jaas_credentials, translated
from headrace.cli.kafka.kafka_errors import KafkaError
from headrace.cli.kafka.tool import ToolError
from headrace.cli.kafka.wire import Connection, Stream

SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_DIGESTS = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_NONCE_BYTES = 24


def secured(
    plain: socket.socket, address: tuple[str, int], protocol: str, properties: Mapping[str, str], client_id: str
) -> Connection:
    """A connection that is encrypted and authenticated as the settings say."""
    if protocol not in PROTOCOLS:
        raise ToolError(f"security.protocol={protocol}: must be one of {', '.join(PROTOCOLS)}")
    stream: Stream = plain
    where = f"{address[0]}:{address[1]}"
    if protocol.endswith("SSL"):
        try:
            stream = _context(properties).wrap_socket(plain, server_hostname=address[0])
        except (OSError, ValueError) as error:
            raise ToolError(f"{where}: TLS failed: {error}; see the ssl. settings of --command-config") from error
    connection = Connection(stream, where, client_id)
    connection.negotiate()
    if protocol.startswith("SASL"):
        _authenticate(connection, properties)
    return connection


def _context(properties: Mapping[str, str]) -> ssl.SSLContext:
    known = translated({key: value for key, value in properties.items() if key.startswith("ssl.")})
    context = ssl.create_default_context(cafile=known.get("ssl.ca.location"), cadata=known.get("ssl.ca.pem"))
    if known.get("ssl.endpoint.identification.algorithm") == "none":
        context.check_hostname = False
    if "ssl.keystore.location" in known:
        raise ToolError(
            "ssl.keystore.type=PKCS12: the tools that administer read keys in PEM; set ssl.keystore.type=PEM"
        )
    if "ssl.certificate.location" in known:
        context.load_cert_chain(known["ssl.certificate.location"], password=properties.get("ssl.key.password"))
    return context


def _authenticate(connection: Connection, properties: Mapping[str, str]) -> None:
    mechanism = properties.get("sasl.mechanism", properties.get("sasl.mechanisms", "GSSAPI"))
    if mechanism != "PLAIN" and mechanism not in _DIGESTS:
        raise ToolError(f"sasl.mechanism={mechanism}: known are PLAIN, {', '.join(_DIGESTS)}")
    if "sasl.jaas.config" in properties:
        held = jaas_credentials(properties["sasl.jaas.config"])
        user, password = held["sasl.username"], held["sasl.password"]
    else:
        user, password = properties.get("sasl.username", ""), properties.get("sasl.password", "")
    answer = connection.call(SASL_HANDSHAKE, {"mechanism": mechanism})
    if answer.error_code:
        offered = ", ".join(answer.mechanisms)
        raise KafkaError(
            int(answer.error_code), f"Client SASL mechanism '{mechanism}' not enabled; enabled are {offered}"
        )
    if mechanism == "PLAIN":
        _exchange(connection, f"\0{user}\0{password}".encode())
    else:
        _scram(connection, _DIGESTS[mechanism], user, password)


def _exchange(connection: Connection, data: bytes) -> bytes:
    answer = connection.call(SASL_AUTHENTICATE, {"auth_bytes": data})
    if answer.error_code:
        raise KafkaError(int(answer.error_code), answer.error_message)
    return bytes(answer.auth_bytes)


def _scram(connection: Connection, digest: str, user: str, password: str) -> None:
    """RFC 5802: proves to each side that the other knows the password, without sending it."""
    nonce = base64.b64encode(os.urandom(_NONCE_BYTES)).decode()
    first = f"n={user.replace('=', '=3D').replace(',', '=2C')},r={nonce}"
    challenge = _exchange(connection, f"n,,{first}".encode()).decode()
    parts = dict(part.split("=", 1) for part in challenge.split(","))
    if not parts.get("r", "").startswith(nonce):
        raise ToolError("SASL: the broker's answer does not belong to this login")
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), base64.b64decode(parts["s"]), int(parts["i"]))
    last = f"c=biws,r={parts['r']}"
    signed = f"{first},{challenge},{last}".encode()
    client_key = hmac.digest(salted, b"Client Key", digest)
    signature = hmac.digest(hashlib.new(digest, client_key).digest(), signed, digest)
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True))).decode()
    final = dict(part.split("=", 1) for part in _exchange(connection, f"{last},p={proof}".encode()).decode().split(","))
    expected = hmac.digest(hmac.digest(salted, b"Server Key", digest), signed, digest)
    if base64.b64decode(final.get("v", "")) != expected:
        raise ToolError("SASL: the broker could not prove that it knows the password; is it the right one?")
