"""One S3 server for all tests here; a test has a prefix of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from s3_server import BUCKET, s3_server


@pytest.fixture(scope="session")
def endpoint() -> Iterator[str]:
    with s3_server() as endpoint:
        yield endpoint


@pytest.fixture
def tables(endpoint: str, request: pytest.FixtureRequest) -> str:
    return f"s3://{BUCKET}/{request.node.name}"
