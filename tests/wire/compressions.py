"""Which codecs each client has: the one place that says what it lacks and where it comes from.

confluent-kafka (librdkafka) and the Java client carry all of them; aiokafka has all through `cramjam`, which
Headrace installs; kafka-python has gzip of its own and takes the rest from one package each.
"""

from __future__ import annotations

import importlib.util

import pytest

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

# codec -> (module, the package that has it)
_KAFKA_PYTHON_NEEDS = {
    "snappy": ("snappy", "python-snappy"),
    "lz4": ("lz4", "lz4"),
    "zstd": ("zstandard", "zstandard"),
}


def _kafka_python_codec(codec: str) -> object:
    module, package = _KAFKA_PYTHON_NEEDS.get(codec, (None, None))
    missing = module is not None and importlib.util.find_spec(module) is None
    return pytest.param(
        codec,
        marks=pytest.mark.skipif(missing, reason=f"kafka-python has {codec} only with `{package}` installed"),
    )


KAFKA_PYTHON_CODECS = [_kafka_python_codec(codec) for codec in CODECS]
CONFLUENT_CODECS = list(CODECS)
AIOKAFKA_CODECS = list(CODECS)
JAVA_CODECS = list(CODECS)
