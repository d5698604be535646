from __future__ import annotations

from pathlib import Path

import pytest

from headrace.client.errors import ClientError
from headrace.client.librdkafka import consumer_settings, producer_settings, translated


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


def test_a_login_may_do_without_quotes() -> None:
    line = "org.apache.kafka.common.security.plain.PlainLoginModule required username=alice password=a=b;"
    assert translated({"sasl.jaas.config": line}) == {"sasl.username": "alice", "sasl.password": "a=b"}


def test_stores_in_pem_are_named_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "ca").write_text("-----BEGIN CERTIFICATE-----\n")
    (tmp_path / "own").write_text("-----BEGIN PRIVATE KEY-----\n")
    stores = {"ssl.truststore.location": f"{tmp_path}/ca", "ssl.keystore.location": f"{tmp_path}/own"}
    assert translated(stores) == {
        "ssl.ca.location": f"{tmp_path}/ca",
        "ssl.certificate.location": f"{tmp_path}/own",
        "ssl.key.location": f"{tmp_path}/own",
    }
    with pytest.raises(ClientError, match=r"ssl\.truststore\.location=/no/such: no such file"):
        translated({"ssl.truststore.location": "/no/such"})


def test_certificates_and_keys_may_stand_in_the_settings() -> None:
    held = "-----BEGIN CERTIFICATE----- QUJD REVG -----END CERTIFICATE-----"
    lines = "-----BEGIN CERTIFICATE-----\nQUJDREVG\n-----END CERTIFICATE-----\n"
    settings = {"ssl.truststore.certificates": held, "ssl.keystore.certificate.chain": lines, "ssl.keystore.key": "x"}
    assert translated(settings) == {"ssl.ca.pem": lines, "ssl.certificate.pem": lines, "ssl.key.pem": "x"}


def test_other_logins_and_partitioners_are_refused() -> None:
    with pytest.raises(ClientError, match="only PlainLoginModule and ScramLoginModule"):
        translated({"sasl.jaas.config": "com.sun.security.auth.module.Krb5LoginModule required;"})
    with pytest.raises(ClientError, match=r"partitioner.class=my.Own: Java classes cannot be loaded"):
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


def test_metadata_is_refreshed_as_often_as_javas_client_would() -> None:
    # librdkafka's own metadata.max.age.ms does not make it look more often.
    assert translated({"metadata.max.age.ms": "500"}) == {"topic.metadata.refresh.interval.ms": 500}
    assert translated({"metadata.max.age.ms": "86400000"}) == {"topic.metadata.refresh.interval.ms": 3_600_000}
