from __future__ import annotations

import pytest

from headrace.cli.kafka.options import Option, OptionError, parse
from headrace.cli.kafka.usage import WIDTH, usage

OPTIONS = (
    Option(name="topic", value="topic", help="The topic."),
    Option(name="partitions", value="count", kind=int, help="How many."),
    Option(name="rate", value="rate", kind=float, default=1.5, help="How fast."),
    Option(name="list", help="List."),
    Option(name="bootstrap-server", also=("broker-list",), value="server", help="The brokers."),
    Option(name="state", value="", value_optional=True, needs=("list",), help="States."),
    Option(name="props", value="k=v", many=True, help="Properties."),
)


@pytest.mark.parametrize("words", [["--topic", "t"], ["--topic=t"], ["-topic", "t"], ["-topic=t"]])
def test_a_value_may_follow_or_be_joined(words: list[str]) -> None:
    assert parse(OPTIONS, words).one("topic") == "t"


def test_a_value_is_taken_whatever_it_looks_like() -> None:
    given = parse(OPTIONS, ["--topic", "--list", "--partitions", "-3"])
    assert (given.one("topic"), given.one("partitions"), given.has("list")) == ("--list", -3, False)


def test_an_older_name_is_the_same_option() -> None:
    assert parse(OPTIONS, ["--broker-list", "a:1"]).one("bootstrap-server") == "a:1"


def test_an_optional_value_is_absent_before_another_option() -> None:
    given = parse(OPTIONS, ["--list", "--state", "--topic", "t"])
    assert given.has("state")
    assert given.one("state") is None
    assert parse(OPTIONS, ["--list", "--state", "empty"]).one("state") == "empty"


def test_many_values_end_at_the_next_option() -> None:
    given = parse(OPTIONS, ["--props", "a=1", "b=2", "--topic", "t", "--props", "c=3"])
    assert given.all("props") == ["a=1", "b=2", "c=3"]
    assert given.order == ["props", "props", "topic", "props"]


def test_a_default_counts_when_nothing_is_given() -> None:
    given = parse(OPTIONS, [])
    assert given.one("rate") == 1.5
    assert not given.has("rate")
    assert given.one("topic") is None


def test_what_is_no_option_is_kept_in_order() -> None:
    assert parse(OPTIONS, ["list", "--topic", "t", "x", "--", "--list"]).rest == ["list", "x", "--list"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--bogus"], "bogus is not a recognized option"),
        (["--top", "t"], "top is not a recognized option"),
        (["--topic"], "Option topic requires an argument"),
        (["--partitions", "many"], "Cannot parse argument 'many' of option partitions"),
        (["--list=yes"], "Option list does not accept an argument"),
        (["--state"], "Option(s) [state] are unavailable given other options on the command line"),
    ],
)
def test_a_wrong_line_is_refused_in_joptsimples_words(words: list[str], said: str) -> None:
    with pytest.raises(OptionError) as refusal:
        parse(OPTIONS, words)
    assert str(refusal.value) == said


def test_an_option_that_stands_twice_has_no_single_value() -> None:
    with pytest.raises(OptionError, match="Found multiple arguments for option topic, but you asked for only one"):
        parse(OPTIONS, ["--topic", "a", "--topic", "b"]).one("topic")


def test_the_usage_lists_every_name_within_its_width() -> None:
    text = usage(OPTIONS)
    assert max(map(len, text.splitlines())) <= WIDTH
    for name in ("--topic <String: topic>", "--broker-list", "--partitions <Integer: count>", "--state [String]"):
        assert name.split()[0] in text
    assert "(default: 1.5)" in text
    names = [line.split()[0] for line in text.splitlines() if line.startswith("--")]
    assert names[1].startswith("--bootstrap-server")
