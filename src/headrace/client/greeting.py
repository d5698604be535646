"""Whether a broker answers as the settings say, asked before librdkafka starts, which would silently retry forever."""

from collections.abc import Mapping

from headrace.client.addresses import await_broker, wait_s_of
from headrace.protocol.error_codes import UNKNOWN_TOPIC_OR_PARTITION


def greet(bootstrap: str, properties: Mapping[str, str], topic: str | None = None) -> bool:
    """Returns once a broker has answered over TLS and after the login, where there are such; or says why not.

    True if the topic is known not to exist. Nothing is created by asking.
    """
    if not _is_known(properties):
        await_broker(bootstrap, wait_s_of(properties))
        return False
    from headrace.client.cluster import ClusterClient

    with ClusterClient(bootstrap, properties) as cluster:
        answer = cluster.metadata([] if topic is None else [topic])
        return any(each.error_code == UNKNOWN_TOPIC_OR_PARTITION for each in answer.topics)


def _is_known(properties: Mapping[str, str]) -> bool:
    """Kerberos and OAuth are librdkafka's own affair."""
    if not properties.get("security.protocol", "").upper().startswith("SASL"):
        return True
    from headrace.client.security import MECHANISMS, mechanism_of

    return mechanism_of(properties) in MECHANISMS
