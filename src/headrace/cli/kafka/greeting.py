"""Whether a broker answers as the settings say, asked before librdkafka is: that would try for ever, in silence."""

from collections.abc import Mapping

from headrace.cli.kafka.addresses import await_broker, wait_s_of


def greet(bootstrap: str, properties: Mapping[str, str]) -> None:
    """Returns once a broker has answered over TLS and after the login, where there are such; or says why not."""
    if not _is_known(properties):
        await_broker(bootstrap, wait_s_of(properties))
        return
    from headrace.cli.kafka.cluster import Cluster

    with Cluster(bootstrap, properties) as cluster:
        cluster.metadata([])


def _is_known(properties: Mapping[str, str]) -> bool:
    """Kerberos and OAuth are librdkafka's own affair."""
    if not properties.get("security.protocol", "").upper().startswith("SASL"):
        return True
    from headrace.cli.kafka.security import MECHANISMS, mechanism_of

    return mechanism_of(properties) in MECHANISMS
