from __future__ import annotations

from headrace.cli.kafka import group_tables
from headrace.client.cluster import BrokerAddress
from headrace.client.groups import Committed, GroupDetails, MemberFacts

NODE = BrokerAddress(1, "h", 9092)


def member(
    name: str, *places: tuple[str, int], upgraded: bool | None = None, instance: str | None = None
) -> MemberFacts:
    return MemberFacts(name, instance, "client", "/127.0.0.1", places, places, 4, upgraded)


def test_members_with_most_partitions_come_first_and_free_partitions_last() -> None:
    facts = GroupDetails("g", "Stable", "range", NODE, (member("few", ("t", 2)), member("many", ("t", 0), ("t", 1))))
    committed = {("t", 0): Committed(4, 2, ""), ("u", 0): Committed(1, None, "")}
    rows = group_tables.offset_rows(facts, committed, {("t", 0): 10, ("u", 0): 1})
    assert [(row.topic, row.partition, row.consumer, row.lag) for row in rows] == [
        ("t", 0, "many", 6),
        ("t", 1, "many", None),
        ("t", 2, "few", None),
        ("u", 0, "-", 0),
    ]


def test_columns_widen_with_what_they_hold() -> None:
    rows = [group_tables.GroupTableRow("g" * 20, "t", 0, 3, 4, 10, "-", "-", "-")]
    titles, row = group_tables.offset_table(rows, verbose=True).splitlines()[1:]
    assert titles.split() == [
        *("GROUP", "TOPIC", "PARTITION", "LEADER-EPOCH", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"),
        *("CONSUMER-ID", "HOST", "CLIENT-ID"),
    ]
    assert row.split() == ["g" * 20, "t", "0", "3", "4", "10", "6", "-", "-", "-"]
    assert titles.index("TOPIC") == 21


def test_a_column_appears_only_when_a_member_has_a_name_of_its_own() -> None:
    plain = GroupDetails("g", "Stable", "range", NODE, (member("m", ("t", 0)),))
    named = plain._replace(members=(member("m", ("t", 0), instance="one"),))
    assert "GROUP-INSTANCE-ID" not in group_tables.member_table(plain, verbose=False)
    assert "GROUP-INSTANCE-ID" in group_tables.member_table(named, verbose=False)


def test_a_group_on_the_move_says_who_has_moved() -> None:
    facts = GroupDetails(
        "g",
        "Stable",
        "uniform",
        NODE,
        (member("a", ("t", 0), ("t", 1), upgraded=True), member("b", upgraded=False)),
        7,
        8,
    )
    table = group_tables.member_table(facts, verbose=True).splitlines()
    assert table[1].split()[-1] == "UPGRADED"
    assert table[2].split()[-5:] == ["4", "t:0,1", "8", "t:0,1", "true"]
    assert table[3].split()[-5:] == ["4", "-", "8", "-", "false"]
