"""An S3 bucket as the place of a pipeline's small files, through obstore.

What two processes may change at once is written only if nobody changed it since it was read: the store compares.
Where it is and who we are comes from the environment, by the names that every S3 tool knows (AWS_REGION,
AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_ENDPOINT_URL, …), so that Spark, deltalake and this agree.
"""

import functools
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.core.errors import OperatorError

if TYPE_CHECKING:
    from obstore.store import S3Store

SCHEME = "s3://"
ENDPOINT = "AWS_ENDPOINT_URL"
REGION_DEFAULT = "us-east-1"
_REFUSALS = ("AccessDenied", "403 Forbidden", "InvalidAccessKeyId", "SignatureDoesNotMatch", "credential")
_TRIES = re.compile(r" in [\d.]+m?s(, after \d+ retries)?(, max_retries: \d+, retry_timeout: \w+ )?")
_RETRIES_MAX, _RETRY_S_MAX = 3, 20


class StoreError(OperatorError):
    """The store did not do what was asked."""


@dataclass(frozen=True, slots=True)
class Tagged:
    """What a file held, and the store's own mark for just that content at that time."""

    data: bytes
    tag: str


def split_url(url: str) -> tuple[str, str]:
    """Bucket and key."""
    bucket, _, key = url.removeprefix(SCHEME).partition("/")
    if not url.startswith(SCHEME) or not bucket:
        raise OperatorError(f"{url}: not a place for tables; give a directory, or s3://BUCKET/PREFIX")
    return bucket, key.rstrip("/")


def endpoint(environ: Mapping[str, str]) -> str | None:
    """Where the store is, when it is not Amazon's."""
    return environ.get("AWS_ENDPOINT_URL_S3") or environ.get(ENDPOINT) or None


def region(environ: Mapping[str, str]) -> str:
    return environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION") or REGION_DEFAULT


def delta_options(path: str, environ: Mapping[str, str] = os.environ) -> dict[str, str] | None:
    """What deltalake must be told beyond what it takes from the environment itself; None for a directory."""
    if not path.startswith(SCHEME):
        return None
    options = {"aws_region": region(environ)}
    where = endpoint(environ)
    if where is not None:
        options |= {"aws_endpoint": where, "aws_allow_http": str(where.startswith("http://")).lower()}
    return options


class ObjectStore:
    """One bucket. Paths are whole URLs, as everywhere else."""

    replace_s_min = 5.0

    def __init__(self, bucket: str, store: "S3Store") -> None:
        self._bucket = bucket
        self._store = store

    def read(self, path: str) -> bytes | None:
        found = self.read_tagged(path)
        return found.data if found is not None else None

    def read_tagged(self, path: str) -> Tagged | None:
        import obstore

        with self._said(path):
            try:
                got = obstore.get(self._store, self._key(path))
                return Tagged(bytes(got.bytes()), str(got.meta["e_tag"]))
            except FileNotFoundError:
                return None

    def write(self, path: str, data: bytes, *, safe: bool = True) -> None:
        import obstore

        with self._said(path):
            obstore.put(self._store, self._key(path), data)

    def write_if(self, path: str, data: bytes, tag: str | None) -> str | None:
        """Only if the file is still the one with that tag (or, with None, if there is none): its new tag, or None."""
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        with self._said(path):
            try:
                mode: object = "create" if tag is None else {"e_tag": tag}
                return str(obstore.put(self._store, self._key(path), data, mode=mode)["e_tag"])  # type: ignore[arg-type]
            except (AlreadyExistsError, PreconditionError):
                return None

    def append(self, path: str, data: bytes) -> int:
        """An object cannot grow: it is written again. Who appends keeps it small, and is alone."""
        whole = (self.read(path) or b"") + data
        self.write(path, whole)
        return len(whole)

    def names(self, path: str) -> list[str]:
        import obstore

        prefix = self._key(path)
        with self._said(path):
            found = obstore.list_with_delimiter(self._store, prefix or None)
        paths = [*found["common_prefixes"], *(each["path"] for each in found["objects"])]
        return sorted(each.rstrip("/").rpartition("/")[2] for each in paths)

    def changed_ms(self, path: str) -> int:
        import obstore

        with self._said(path):
            return round(obstore.head(self._store, self._key(path))["last_modified"].timestamp() * 1000)

    def remove_tree(self, path: str) -> None:
        """By Arrow's S3: Hadoop marks directories by objects whose names end in a slash, which obstore cannot name."""
        from pyarrow import fs

        where = endpoint(os.environ)
        scheme, _, host = where.partition("://") if where is not None else ("https", "", None)
        files = fs.S3FileSystem(region=region(os.environ), endpoint_override=host, scheme=scheme)
        try:
            files.delete_dir(path.removeprefix(SCHEME))
        except FileNotFoundError:
            return
        except OSError as error:
            raise StoreError(f"{path}: {_reason(error)}; {_remedy(str(error))}") from error

    def _key(self, path: str) -> str:
        bucket, key = split_url(path)
        if bucket != self._bucket:
            raise OperatorError(f"{path}: not in bucket {self._bucket}")
        return key

    @contextmanager
    def _said(self, path: str) -> Iterator[None]:
        """Whatever the store answers is one line."""
        from obstore.exceptions import BaseError

        try:
            yield
        except BaseError as error:
            raise StoreError(f"{path}: {_reason(error)}; {_remedy(str(error))}") from error


@functools.cache
def _store(bucket: str, where: str | None, region_name: str) -> ObjectStore:
    try:
        from obstore.store import S3Store
    except ImportError as error:
        raise OperatorError("s3:// needs obstore; install it with: pip install 'headrace[s3]'") from error
    from datetime import timedelta

    return ObjectStore(
        bucket,
        S3Store(
            bucket,
            region=region_name,
            endpoint=where,
            virtual_hosted_style_request=False,
            conditional_put="etag",
            client_options={"allow_http": where is not None and where.startswith("http://"), "timeout": "20s"},
            retry_config={"max_retries": _RETRIES_MAX, "retry_timeout": timedelta(seconds=_RETRY_S_MAX)},
        ),
    )


def object_store(url: str) -> ObjectStore:
    return _store(split_url(url)[0], endpoint(os.environ), region(os.environ))


def _reason(error: Exception) -> str:
    """The first line of what obstore says; behind it come pages about how it is built."""
    lines = [line.strip() for line in _TRIES.sub("", str(error)).splitlines() if line.strip()]
    return lines[0].removeprefix("Generic S3 error: ")[:200].rstrip(":") if lines else type(error).__name__


def _remedy(text: str) -> str:
    if "NoSuchBucket" in text:
        return "make the bucket first"
    if any(word in text for word in _REFUSALS):
        return "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY to those of someone who may read and write there"
    return f"look at {ENDPOINT}, AWS_REGION and the network"
