"""Java's stores as PEM; those that Java itself has made are read in tests/tools/test_secured.py."""

from __future__ import annotations

import hashlib
import ssl
import struct
from pathlib import Path

import pytest

from headrace.client import key_stores
from headrace.client.errors import ClientError
from headrace.client.key_stores import JKS, PEM, PKCS12, kind_of, tidied, trusted

SETTING = "ssl.truststore.location"
PASSWORD = "pässword"


def text(value: str) -> bytes:
    return struct.pack(">H", len(value)) + value.encode()


def certificate(data: bytes) -> bytes:
    return text("X.509") + struct.pack(">I", len(data)) + data


def jks(*entries: bytes) -> bytes:
    body = struct.pack(">III", 0xFEEDFEED, 2, len(entries)) + b"".join(entries)
    return body + hashlib.sha1(PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + body).digest()


def trusts(data: bytes) -> bytes:
    return struct.pack(">I", 2) + text("alias") + bytes(8) + certificate(data)


def key(data: bytes, *chain: bytes) -> bytes:
    whole = struct.pack(">I", len(data)) + data + struct.pack(">I", len(chain)) + b"".join(map(certificate, chain))
    return struct.pack(">I", 1) + text("key") + bytes(8) + whole


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store"


def test_a_store_is_known_by_how_it_begins(path: Path) -> None:
    for content, kind in ((jks(), JKS), (b"Bag\n-----BEGIN CERTIFICATE-----\n", PEM), (b"\x30\x82", PKCS12)):
        path.write_bytes(content)
        assert kind_of(str(path), SETTING) == kind
    path.write_bytes(b"what?")
    with pytest.raises(ClientError, match="is neither PEM nor JKS nor PKCS12"):
        kind_of(str(path), SETTING)


@pytest.mark.parametrize("password", [PASSWORD, None])
def test_the_trusted_certificates_of_a_jks_are_found_and_those_of_its_keys_are_not(
    path: Path, password: str | None
) -> None:
    path.write_bytes(jks(trusts(b"first"), key(b"secret", b"own", b"issuer"), trusts(b"second" * 30)))
    expected = ssl.DER_cert_to_PEM_cert(b"first") + ssl.DER_cert_to_PEM_cert(b"second" * 30)
    assert trusted(str(path), password, SETTING) == expected


@pytest.mark.parametrize(
    ("content", "password", "why"),
    [
        (jks(trusts(b"x")), "wrong", "ssl.truststore.password is wrong, or the file was changed"),
        (jks(), None, "holds no certificate; add one with `keytool -importcert`"),
        (jks(struct.pack(">I", 3) + text("") + bytes(8)), None, "has an entry of kind 3"),
        (jks(trusts(b"x" * 100))[:80], None, "ends in the middle"),
    ],
)
def test_a_jks_that_cannot_be_read_is_refused(path: Path, content: bytes, password: str | None, why: str) -> None:
    path.write_bytes(content)
    with pytest.raises(ClientError) as raised:
        trusted(str(path), password, SETTING)
    assert str(raised.value).startswith(f"{SETTING}={path}: ")
    assert why in str(raised.value)


def test_pkcs12_without_a_program_that_opens_it_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_bytes(b"\x30\x82")
    monkeypatch.setattr(key_stores.shutil, "which", lambda name: None)
    with pytest.raises(ClientError, match=r"PKCS12 needs `openssl` or `keytool`, which is not installed"):
        trusted(str(path), "x", SETTING)


def test_pem_on_one_line_gets_its_lines_back() -> None:
    body = "A" * 70
    assert tidied(f"-----BEGIN X----- {body} -----END X-----") == (
        f"-----BEGIN X-----\n{body[:64]}\n{body[64:]}\n-----END X-----\n"
    )
    with_headers = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4\n\nAAAA\n-----END RSA PRIVATE KEY-----\n"
    assert tidied(with_headers) == with_headers
