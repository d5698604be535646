from prometheus_client.metrics_core import Metric

from headrace.broker.metrics import FAMILIES, Histogram, Metrics, prometheus_families


def families(snapshot: dict[str, object]) -> dict[str, Metric]:
    return {family.name: family for family in prometheus_families(snapshot)}


def samples(family: Metric) -> dict[tuple[str, ...], float]:
    return {(sample.name, *sample.labels.values()): sample.value for sample in family.samples}


def test_a_value_on_a_bound_counts_as_within_it() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.0, 3.0):
        histogram.observe(value)
    assert histogram.counts == [2, 2, 1]
    assert histogram.total == 8.0


def test_a_snapshot_does_not_change_when_the_counters_do() -> None:
    metrics = Metrics({0: "Produce"})
    metrics.requests[0] += 1
    metrics.produce_latency.observe(0.001)
    before = metrics.snapshot()
    metrics.requests[0] += 1
    metrics.error(3)
    metrics.produce_latency.observe(0.001)
    assert before["requests"] == {("Produce",): 1}
    assert before["errors"] == {}
    assert sum(before["produce_latency"].counts) == 1  # type: ignore[attr-defined]


def test_requests_are_labelled_by_api_name() -> None:
    metrics = Metrics({0: "Produce"})
    metrics.requests[0] += 2
    metrics.requests[99] += 1
    assert samples(families(metrics.snapshot())["headrace_requests"]) == {
        ("headrace_requests_total", "Produce"): 2,
        ("headrace_requests_total", "99"): 1,
    }


def test_histograms_are_cumulative_in_prometheus() -> None:
    metrics = Metrics()
    metrics.fetch_latency.observe(0.00005)
    metrics.fetch_latency.observe(0.003)
    metrics.fetch_latency.observe(60)
    found = samples(families(metrics.snapshot())["headrace_fetch_latency_seconds"])
    assert found[("headrace_fetch_latency_seconds_bucket", "0.0001")] == 1
    assert found[("headrace_fetch_latency_seconds_bucket", "0.005")] == 2
    assert found[("headrace_fetch_latency_seconds_bucket", "+Inf")] == 3
    assert found[("headrace_fetch_latency_seconds_count",)] == 3


def test_a_name_that_nobody_described_is_a_gauge() -> None:
    found = families({"odd_thing": 3, "by_two": {("a", "b"): 1}, "not a number": "x"})
    assert found["headrace_odd_thing"].type == "gauge"
    assert samples(found["headrace_by_two"]) == {("headrace_by_two", "a", "b"): 1}
    assert len(found) == 2


def test_every_counter_has_a_name_and_help_of_its_own() -> None:
    assert set(Metrics().snapshot()) <= set(FAMILIES)
    names = [family.name for family in FAMILIES.values()]
    assert len(set(names)) == len(names)
    assert all(family.help.endswith(".") for family in FAMILIES.values())
