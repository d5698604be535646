"""Numbers as Java prints them, times in its patterns, statistics, addresses, filters."""

from __future__ import annotations

import pytest

from headrace.cli.kafka.consumer_perf_test import shown_time
from headrace.cli.kafka.get_offsets import parse_time, rule_filter
from headrace.cli.kafka.quotas import java_double
from headrace.cli.kafka.send_statistics import SendStatistics
from headrace.cli.kafka.tool import UsageError
from headrace.client.addresses import parse_addresses
from headrace.client.errors import AddressError
from headrace.client.topics import matching


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (20.0, "20.0"),
        (1e7, "1.0E7"),
        (10485760.0, "1.048576E7"),
        (9999999.5, "9999999.5"),
        (0.0001, "1.0E-4"),
        (0.001, "0.001"),
        (-12345678.9, "-1.23456789E7"),
        (0.0, "0.0"),
    ],
)
def test_doubles_look_like_java_s(value: float, text: str) -> None:
    assert java_double(value) == text


def test_times_follow_simple_date_format() -> None:
    assert len(shown_time(1_700_000_000_123, "yyyy-MM-dd HH:mm:ss:SSS")) == 23
    assert shown_time(1_700_000_000_123, "yyyy-MM-dd HH:mm:ss:SSS").endswith(":123")
    assert shown_time(1_700_000_000_007, "'at' SSS") == "at 007"


def test_a_load_is_summed_up() -> None:
    said: list[str] = []
    counted = SendStatistics(4, 1000, 0, said.append, steady=False)
    for latency_ms, now_ms in ((10, 100), (20, 400), (30, 1000), (40, 2000)):
        counted.record(latency_ms, 1 << 20, now_ms)
    assert said[0] == "3 records sent, 3.0 records/sec (3.00 MB/sec), 20.0 ms avg latency, 30.0 ms max latency."
    assert counted.total_line(2000) == (
        "4 records sent, 2.000000 records/sec (2.00 MB/sec), 25.00 ms avg latency, 40.00 ms max latency, 30 ms 50th, "
        "40 ms 95th, 40 ms 99th, 40 ms 99.9th."
    )


def test_addresses_may_be_several_and_of_either_kind() -> None:
    assert parse_addresses("a:1, [::1]:2,PLAINTEXT://b:3") == [("a", 1), ("::1", 2), ("b", 3)]
    for wrong in ("", "a", "a:", "a:x", ":1", "a:1,b"):
        with pytest.raises(AddressError, match="valid host:port"):
            parse_addresses(wrong)


def test_topics_are_matched_whole_and_a_comma_means_or() -> None:
    names = ["__consumer_offsets", "orders", "orders-2", "users"]
    assert matching(names, "orders,users") == ["orders", "users"]
    assert matching(names, "'orders.*'") == ["orders", "orders-2"]
    assert matching(names, None, exclude_internal=True) == names[1:]


@pytest.mark.parametrize(
    ("rule", "allowed"),
    [
        ("t:1", [1]),
        ("t:1-3", [1, 2]),
        ("t:2-", [2, 3]),
        ("t:-2", [0, 1]),
        ("t", [0, 1, 2, 3]),
        (":3", [3]),
        ("u:1,t:0", [0]),
    ],
)
def test_partitions_are_picked_by_rules(rule: str, allowed: list[int]) -> None:
    picks = rule_filter(rule)
    assert [number for number in range(4) if picks("t", number)] == allowed


def test_a_time_is_a_word_or_a_number() -> None:
    assert [parse_time(text) for text in ("latest", "-2", "1700000000000")] == [-1, -2, 1_700_000_000_000]
    with pytest.raises(UsageError, match="Malformed time argument soon"):
        parse_time("soon")
