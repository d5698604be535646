from __future__ import annotations

import pytest

from headrace.cli.kafka.client_settings import consumer_settings, producer_settings, translated
from headrace.cli.kafka.tool import ToolError


def test_java_names_become_librdkafkas() -> None:
    assert translated(
        {
            "acks": "all",
            "buffer.memory": "33554432",
            "send.buffer.bytes": "-1",
            "fetch.max.wait.ms": "5",
            "max.request.size": "9",
            "key.serializer": "org.apache.kafka.common.serialization.StringSerializer",
            "partition.assignment.strategy": "org.apache.kafka.clients.consumer.RangeAssignor,"
            "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
            "ssl.endpoint.identification.algorithm": "",
        }
    ) == {
        "acks": "all",
        "queue.buffering.max.kbytes": 32768,
        "socket.send.buffer.bytes": 0,
        "fetch.wait.max.ms": "5",
        "message.max.bytes": "9",
        "partition.assignment.strategy": "range,cooperative-sticky",
        "ssl.endpoint.identification.algorithm": "none",
    }


def test_a_login_is_read_from_a_jaas_line() -> None:
    line = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="al\\"ice" password="a=b;c";'
    found = translated({"sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": line})
    assert found == {"sasl.mechanisms": "SCRAM-SHA-256", "sasl.username": 'al"ice', "sasl.password": "a=b;c"}


def test_stores_in_pem_are_read_and_javas_own_are_refused() -> None:
    pem = {"ssl.truststore.type": "PEM", "ssl.truststore.location": "/ca", "ssl.keystore.type": "PEM"}
    assert translated(pem | {"ssl.keystore.location": "/own"}) == {
        "ssl.ca.location": "/ca",
        "ssl.certificate.location": "/own",
        "ssl.key.location": "/own",
    }
    with pytest.raises(ToolError, match=r"ssl\.truststore\.type=JKS: only PEM and PKCS12 can be read"):
        translated({"ssl.truststore.location": "/ca"})


def test_other_logins_and_partitioners_are_refused() -> None:
    with pytest.raises(ToolError, match="only PlainLoginModule and ScramLoginModule"):
        translated({"sasl.jaas.config": "com.sun.security.auth.module.Krb5LoginModule required;"})
    with pytest.raises(ToolError, match=r"partitioner.class=my.Own: Java classes cannot be loaded"):
        translated({"partitioner.class": "my.Own"})


def test_a_producer_is_idempotent_as_javas_is_unless_its_settings_forbid_it() -> None:
    assert producer_settings({})["enable.idempotence"] == "true"
    assert producer_settings({})["partitioner"] == "murmur2_random"
    for other in ({"acks": "1"}, {"retries": "0"}, {"max.in.flight.requests.per.connection": "9"}):
        assert "enable.idempotence" not in producer_settings(other)
    assert producer_settings({"enable.idempotence": "false"})["enable.idempotence"] == "false"


def test_a_consumer_reads_uncommitted_records_as_javas_does() -> None:
    assert consumer_settings({})["isolation.level"] == "read_uncommitted"
    assert consumer_settings({"isolation.level": "read_committed"})["isolation.level"] == "read_committed"
