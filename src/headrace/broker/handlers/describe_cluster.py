"""DescribeCluster: the brokers, the controller and the cluster's id.

v1 adds the kind of endpoint (1 broker, 2 controller), v2 whether fenced brokers are wanted; there are
none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.broker.api import Api, Request
from headrace.broker.handlers.address import addresses
from headrace.broker.rights import NOT_ASKED
from headrace.protocol.error_codes import MISMATCHED_ENDPOINT_TYPE, NONE, UNSUPPORTED_ENDPOINT_TYPE

if TYPE_CHECKING:
    from headrace.broker.parts import ClusterParts

BROKER, CONTROLLER = 1, 2


def handle(parts: ClusterParts, request: Request) -> Mapping[str, object]:
    wanted = getattr(request.body, "endpoint_type", BROKER)
    if wanted == CONTROLLER:
        why = "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
        return _refused(MISMATCHED_ENDPOINT_TYPE, why)
    if wanted != BROKER:
        return _refused(UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {wanted}")
    image = parts.cluster.image
    asked = request.body.include_cluster_authorized_operations
    return {
        "error_code": NONE,
        "error_message": None,
        "cluster_id": image.cluster_id,
        "controller_id": image.controller_id,
        "brokers": [
            {"broker_id": each, "host": host, "port": port, "rack": rack, "is_fenced": False}
            for each, host, port, rack in addresses(parts, request)
        ],
        "cluster_authorized_operations": parts.rights.cluster_mask(request.session) if asked else NOT_ASKED,
    }


def _refused(code: int, why: str) -> Mapping[str, object]:
    return {"error_code": code, "error_message": why, "cluster_id": "", "brokers": []}


API = Api(key=60, name="DescribeCluster", low=0, high=2, handle=handle)
