"""What `ssl.truststore.` and `ssl.keystore.` settings name, as PEM: the one format that OpenSSL takes.

A file is known by how it begins, as Java does it, not by `.type`. JKS is read here (certificates only: its keys are
encrypted in a way of Java's own); PKCS12 needs a cipher that Python lacks, so the `openssl` or `keytool` of the machine
opens it. A password goes to them in their environment, never on a command line, which every user of a machine can see.
"""

import hashlib
import os
import re
import shutil
import struct
import subprocess
from collections.abc import Iterator

from headrace.client.errors import ClientError

PEM, JKS, PKCS12 = "PEM", "JKS", "PKCS12"
OPEN_S_MAX = 20.0
_BEGINNING_BYTES = 1 << 16
_JKS_MAGIC = 0xFEEDFEED
_JKS_KEY, _JKS_CERTIFICATE = 1, 2
_JKS_SALT = b"Mighty Aphrodite"  # between the password and the entries in what Java hashes
_DIGEST_BYTES = 20
_DER_SEQUENCE = 0x30
_PASSWORD_VARIABLE = "HEADRACE_STORE_PASSWORD"
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
_PEM_BLOCK = re.compile(r"-----BEGIN ([A-Z ]+)-----(.*?)-----END \1-----", re.DOTALL)
_PEM_LINE = 64


def kind_of(path: str, setting: str) -> str:
    """Of the file that `setting` names."""
    try:
        with open(path, "rb") as file:
            head = file.read(_BEGINNING_BYTES)
    except OSError as error:
        raise ClientError(f"{setting}={path}: {(error.strerror or str(error)).lower()}") from error
    if int.from_bytes(head[:4], "big") == _JKS_MAGIC:
        return JKS
    if b"-----BEGIN " in head:
        return PEM
    if head[:1] == bytes([_DER_SEQUENCE]):
        return PKCS12
    raise ClientError(f"{setting}={path}: is neither PEM nor JKS nor PKCS12")


def trusted(path: str, password: str | None, setting: str) -> str:
    """The certificates of a JKS or PKCS12 file."""
    if kind_of(path, setting) == JKS:
        import ssl

        with open(path, "rb") as file:
            found = [ssl.DER_cert_to_PEM_cert(each) for each in _jks_certificates(file.read(), path, password, setting)]
    else:
        found = [each + "\n" for each in _CERTIFICATE.findall(_opened(path, password, setting))]
    if not found:
        raise ClientError(f"{setting}={path}: holds no certificate; add one with `keytool -importcert`")
    return "".join(found)


def own_key(path: str, password: str | None, setting: str) -> str:
    """The private key and the certificates of a PKCS12 file."""
    return "\n".join(each[0] for each in _PEM_BLOCK.finditer(_opened(path, password, setting, keys=True)))


def tidied(pem: str) -> str:
    """PEM out of a settings file, where Java takes it on one line: OpenSSL wants lines."""

    def lines(block: re.Match[str]) -> str:
        body = "".join(block[2].split())
        if ":" in body:
            return block[0] + "\n"  # with headers of its own, which end with their lines
        rows = [body[at : at + _PEM_LINE] for at in range(0, len(body), _PEM_LINE)]
        return "\n".join([f"-----BEGIN {block[1]}-----", *rows, f"-----END {block[1]}-----\n"])

    return "".join(map(lines, _PEM_BLOCK.finditer(pem))) or pem


def _opened(path: str, password: str | None, setting: str, *, keys: bool = False) -> str:
    """What a program of the machine makes of a PKCS12 file."""
    variable = f"env:{_PASSWORD_VARIABLE}"
    commands = [["openssl", "pkcs12", "-in", path, "-passin", variable, "-nodes" if keys else "-nokeys"]]
    if not keys:
        commands.append(["keytool", "-list", "-rfc", "-keystore", path, "-storepass:env", _PASSWORD_VARIABLE])
    why = ""
    for command in commands:
        if shutil.which(command[0]) is None:
            continue
        environment = {**os.environ, _PASSWORD_VARIABLE: password or ""}
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, stdin=subprocess.DEVNULL, env=environment, timeout=OPEN_S_MAX
            )
        except subprocess.TimeoutExpired:
            continue
        if done.returncode == 0:
            return done.stdout
        why = why or (done.stderr or done.stdout).strip().partition("\n")[0]
    if why:
        raise ClientError(f"{setting}={path}: cannot be opened ({why}); is {_password_of(setting)} right?")
    needed = "`openssl`" if keys else "`openssl` or `keytool`"
    raise ClientError(f"{setting}={path}: PKCS12 needs {needed}, which is not installed; give the file as PEM")


def _jks_certificates(data: bytes, path: str, password: str | None, setting: str) -> Iterator[bytes]:
    entries, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if password is not None:
        salted = password.encode("utf-16-be") + _JKS_SALT
        if hashlib.sha1(salted + entries, usedforsecurity=False).digest() != digest:
            raise ClientError(f"{setting}={path}: {_password_of(setting)} is wrong, or the file was changed")
    reader = _Reader(entries)
    try:
        _, version, count = reader.number(), reader.number(), reader.number()
        for _ in range(count):
            tag = reader.number()
            reader.text()  # alias
            reader.skip(8)  # when it was made
            if tag == _JKS_KEY:
                reader.skip(reader.number())
                for _ in range(reader.number()):
                    reader.certificate(version)
            elif tag == _JKS_CERTIFICATE:
                yield reader.certificate(version)
            else:
                raise ClientError(f"{setting}={path}: has an entry of kind {tag}; only keys and certificates are known")
    except struct.error as error:
        raise ClientError(f"{setting}={path}: ends in the middle; copy it again") from error


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self) -> int:
        (value,) = struct.unpack_from(">I", self._data, self._at)
        self._at += 4
        return int(value)

    def text(self) -> None:
        (size,) = struct.unpack_from(">H", self._data, self._at)
        self.skip(2 + size)

    def certificate(self, version: int) -> bytes:
        if version > 1:
            self.text()  # its kind, X.509
        size = self.number()
        start = self._at
        self.skip(size)
        return self._data[start : self._at]

    def skip(self, size: int) -> None:
        self._at += size
        if self._at > len(self._data):
            raise struct.error("beyond the end")


def _password_of(setting: str) -> str:
    return setting.replace(".location", ".password")
