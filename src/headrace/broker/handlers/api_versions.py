"""ApiVersions: what this broker serves, asked before anything else is known.

v3 adds the client's name and version, which must look like one; v4 allows features whose lowest version
is 0, of which there are none here. A version that is not served is answered in v0 with error 35 and the
range of this API alone, so that the client can ask again; the router brings it here without a body.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.broker.api import Api, Request
from headrace.broker.handlers import ADVERTISED
from headrace.protocol.api_keys import API_VERSIONS
from headrace.protocol.error_codes import INVALID_REQUEST, NONE, UNSUPPORTED_VERSION
from headrace.protocol.messages import Body, encode_body

if TYPE_CHECKING:
    from headrace.broker.parts import SoftwareParts

LOW, HIGH = 0, 4
SOFTWARE_SINCE = 3
SHOWN_CHARACTERS_MAX = 100  # of the name and the version of a client's software

# What clients look for before they use the consumer group protocol, or a transaction whose end bumps the epoch.
FEATURES = {"group.version": 1, "transaction.version": 2}
FEATURES_FROM_0_SINCE = 4  # v3 cannot tell of a feature whose lowest version is 0

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(parts: SoftwareParts, request: Request) -> Body:
    if not LOW <= request.version <= HIGH:
        return unsupported()
    if request.version >= SOFTWARE_SINCE:
        name, version = request.body.client_software_name, request.body.client_software_version
        if not (_SOFTWARE.fullmatch(name) and _SOFTWARE.fullmatch(version)):
            return {"error_code": INVALID_REQUEST, "api_keys": []}
        session = request.session
        # A name may be as long as a request is: what is kept of it for each connection is not.
        session.software_name = name[:SHOWN_CHARACTERS_MAX]
        session.software_version = version[:SHOWN_CHARACTERS_MAX]
        parts.software.tell(session, session.software_name)
    if request.throttle_ms:
        return _body(request.version)
    return _encoded(request.version)


@functools.cache
def _encoded(version: int) -> bytes:
    return encode_body(API_VERSIONS, version, _body(version))


def _body(version: int) -> Mapping[str, object]:
    return {
        "error_code": NONE,
        "api_keys": [{"api_key": key, "min_version": low, "max_version": high} for key, low, high in ADVERTISED],
        "supported_features": [
            {"name": name, "min_version": 0, "max_version": level} for name, level in FEATURES.items()
        ]
        if version >= FEATURES_FROM_0_SINCE
        else [],
        "finalized_features_epoch": 0,  # below 0, the Java client takes the features for unknown
        "finalized_features": [
            {"name": name, "max_version_level": level, "min_version_level": level} for name, level in FEATURES.items()
        ],
    }


def unsupported() -> Mapping[str, object]:
    """The answer to a version that is not served; to be encoded in version 0."""
    this = {"api_key": API_VERSIONS, "min_version": LOW, "max_version": HIGH}
    return {"error_code": UNSUPPORTED_VERSION, "api_keys": [this]}


API = Api(key=API_VERSIONS, name="ApiVersions", low=LOW, high=HIGH, handle=handle)
