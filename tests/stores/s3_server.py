"""An S3 on a free port of 127.0.0.1 (moto's), and the environment by which everything finds it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

BUCKET = "lake"
# Any keys do for moto; a JVM that was started before the server knows these by its environment.
KEYS = {"AWS_ACCESS_KEY_ID": "somebody", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}


@contextmanager
def s3_server() -> Iterator[str]:
    """Gives the endpoint; there is one empty bucket."""
    from moto.server import ThreadedMotoServer
    from werkzeug.serving import WSGIRequestHandler

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    # It sends head and body apart: with Nagle's algorithm each answer would wait 40 ms for an acknowledgement.
    WSGIRequestHandler.disable_nagle_algorithm = True
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    try:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in {**KEYS, "AWS_ENDPOINT_URL": endpoint}.items():
                patch.setenv(name, value)
            make_bucket(endpoint)
            yield endpoint
    finally:
        server.stop()


def make_bucket(endpoint: str) -> None:
    import boto3

    boto3.client("s3", endpoint_url=endpoint, region_name=KEYS["AWS_REGION"]).create_bucket(Bucket=BUCKET)


def keys_under(endpoint: str, prefix: str) -> list[str]:
    """Everything, the marks of directories too."""
    import boto3

    pages = boto3.client("s3", endpoint_url=endpoint, region_name=KEYS["AWS_REGION"]).get_paginator("list_objects_v2")
    return [each["Key"] for page in pages.paginate(Bucket=BUCKET, Prefix=prefix) for each in page.get("Contents", ())]
