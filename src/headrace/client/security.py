"""TLS and SASL for the connections that administer: PLAIN and SCRAM, certificates as `key_stores` reads them.

What produces and consumes has librdkafka's own; here is what the settings of `--command-config` need for the rest.
Kerberos and OAuth are refused, with a line that says so.
"""

import base64
import hashlib
import hmac
import os
import re
import socket
import ssl
import tempfile
from collections.abc import Mapping

from headrace.client.errors import ClientError, KafkaError
from headrace.client.key_stores import own_key
from headrace.client.librdkafka import jaas_credentials, translated
from headrace.client.wire import BrokerConnection, Stream
from headrace.protocol.api_keys import SASL_AUTHENTICATE, SASL_HANDSHAKE

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_DIGESTS = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MECHANISMS = ("PLAIN", *_DIGESTS)
_NONCE_BYTES = 24
_WRONG_NAME = (62, 64)  # OpenSSL's numbers for a host name and for an address that a certificate does not have
_NOT_TLS = (None, "UNEXPECTED_EOF_WHILE_READING", "WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE")


def secured(
    plain: socket.socket, address: tuple[str, int], protocol: str, properties: Mapping[str, str], client_id: str
) -> BrokerConnection:
    """A connection that is encrypted and authenticated as the settings say."""
    if protocol not in PROTOCOLS:
        raise ClientError(f"security.protocol={protocol}: must be one of {', '.join(PROTOCOLS)}")
    stream: Stream = plain
    where = f"{address[0]}:{address[1]}"
    if protocol.endswith("SSL"):
        try:
            context = _context(properties)
        except (OSError, ValueError) as error:
            raise ClientError(f"The ssl. settings cannot be used: {_plain(error)}") from error
        try:
            stream = context.wrap_socket(plain, server_hostname=address[0])
        except (OSError, ValueError) as error:
            raise ClientError(f"{where}: {_handshake_failed(error, address[0])}") from error
    connection = BrokerConnection(stream, where, client_id)
    connection.negotiate()
    if protocol.startswith("SASL"):
        _authenticate(connection, properties)
    return connection


def _context(properties: Mapping[str, str]) -> ssl.SSLContext:
    known = translated({key: value for key, value in properties.items() if key.startswith("ssl.")})
    context = ssl.create_default_context(cafile=known.get("ssl.ca.location"), cadata=known.get("ssl.ca.pem"))
    if known.get("ssl.endpoint.identification.algorithm") == "none":
        context.check_hostname = False
    password = properties.get("ssl.key.password")
    if "ssl.keystore.location" in known:
        store = own_key(known["ssl.keystore.location"], known["ssl.keystore.password"], "ssl.keystore.location")
        _load_own(context, store, None)
    elif "ssl.certificate.location" in known:
        context.load_cert_chain(known["ssl.certificate.location"], password=password)
    elif "ssl.certificate.pem" in known:
        _load_own(context, f"{known.get('ssl.key.pem', '')}\n{known['ssl.certificate.pem']}", password)
    return context


def _load_own(context: ssl.SSLContext, pem: str, password: str | None) -> None:
    """Python reads a key from a file only: one that nobody else can read, and that is gone at once."""
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
        file.write(pem)
        file.flush()
        context.load_cert_chain(file.name, password=password)


def _handshake_failed(error: Exception, host: str) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in _WRONG_NAME:
            return (
                f"its certificate is not for {host}; connect to the name that it has, or set "
                "ssl.endpoint.identification.algorithm to nothing"
            )
        return (
            f"its certificate is not trusted ({error.verify_message}); set ssl.truststore.location to the certificate "
            "of the authority that signed it"
        )
    if isinstance(error, ssl.SSLError | ConnectionResetError) and getattr(error, "reason", None) in _NOT_TLS:
        return "does not speak TLS; is that the right port, and security.protocol the right one?"
    if isinstance(error, TimeoutError):
        return "did not answer to TLS in time; is that the right port, and security.protocol the right one?"
    return f"TLS failed: {_plain(error)}; see the ssl. settings"


def _plain(error: Exception) -> str:
    """Without the numbers of OpenSSL and the lines of Python."""
    text = getattr(error, "strerror", None) or str(error)
    return re.sub(r"^\[[^]]*\] | \(_ssl\.c:\d+\)$", "", text).lower()


def mechanism_of(properties: Mapping[str, str]) -> str:
    return properties.get("sasl.mechanism", properties.get("sasl.mechanisms", "GSSAPI"))


def _authenticate(connection: BrokerConnection, properties: Mapping[str, str]) -> None:
    mechanism = mechanism_of(properties)
    if mechanism not in MECHANISMS:
        raise ClientError(f"sasl.mechanism={mechanism}: known are {', '.join(MECHANISMS)}")
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


def _exchange(connection: BrokerConnection, data: bytes) -> bytes:
    answer = connection.call(SASL_AUTHENTICATE, {"auth_bytes": data})
    if answer.error_code:
        raise KafkaError(int(answer.error_code), answer.error_message)
    return bytes(answer.auth_bytes)


def _scram(connection: BrokerConnection, digest: str, user: str, password: str) -> None:
    """RFC 5802: proves to each side that the other knows the password, without sending it."""
    nonce = base64.b64encode(os.urandom(_NONCE_BYTES)).decode()
    first = f"n={user.replace('=', '=3D').replace(',', '=2C')},r={nonce}"
    challenge = _exchange(connection, f"n,,{first}".encode()).decode()
    parts = dict(part.split("=", 1) for part in challenge.split(","))
    if not parts.get("r", "").startswith(nonce):
        raise ClientError("SASL: the broker's answer does not belong to this login")
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), base64.b64decode(parts["s"]), int(parts["i"]))
    last = f"c=biws,r={parts['r']}"
    signed = f"{first},{challenge},{last}".encode()
    client_key = hmac.digest(salted, b"Client Key", digest)
    signature = hmac.digest(hashlib.new(digest, client_key).digest(), signed, digest)
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True))).decode()
    final = dict(part.split("=", 1) for part in _exchange(connection, f"{last},p={proof}".encode()).decode().split(","))
    expected = hmac.digest(hmac.digest(salted, b"Server Key", digest), signed, digest)
    if base64.b64decode(final.get("v", "")) != expected:
        raise ClientError("SASL: the broker could not prove that it knows the password; is it the right one?")
