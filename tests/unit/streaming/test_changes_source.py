"""What a topic of changes says of the table that is made of it. No Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from pipeline_files import graph_of

from headrace.core.errors import OperatorError
from headrace.streaming.declarations import TableOutput

SOURCE = 'people = hr.changes("people", "id int, name string", key="id")\n'


def output(tmp_path: Path, code: str) -> TableOutput:
    found = graph_of(tmp_path, SOURCE + code).nodes["t"].output
    assert isinstance(found, TableOutput)
    return found


@pytest.mark.parametrize(
    "code",
    [
        "@hr.table\ndef t(people):\n    return people",
        "@hr.view\ndef v(people):\n    return people\n@hr.table\ndef t(v):\n    return v",
        "@hr.table\ndef t(people, names=hr.static('names')):\n    return people",
    ],
)
def test_a_table_that_says_nothing_of_keys_takes_them_from_the_changes(tmp_path: Path, code: str) -> None:
    found = output(tmp_path, code)
    assert (found.key, found.order_by) == (("id",), ("_order",))
    assert (found.delete, found.truncate) == ("_op = 'd'", "_op = 't'")
    assert found.leave_out == ("_op", "_order", "_at")
    expected = graph_of(tmp_path, SOURCE + code).nodes["t"].expectations
    assert [each.name for each in expected] == ["order is known"]


def test_a_table_that_says_otherwise_is_left_alone(tmp_path: Path) -> None:
    assert output(tmp_path, "@hr.table(mode='append')\ndef t(people):\n    return people").key == ()
    own = output(tmp_path, "@hr.table(key='name', order_by='_at')\ndef t(people):\n    return people")
    assert (own.key, own.order_by, own.delete) == (("name",), ("_at",), None)


def test_two_topics_of_changes_are_not_one_table(tmp_path: Path) -> None:
    pets = 'pets = hr.changes("pets", "id int, name string", key="id")\n'
    both = "@hr.table{}\ndef t(people, pets):\n    return people.unionByName(pets)"
    for given in ("", "(key='id')", "(key='id', order_by='_order', delete=\"_op = 'd'\")"):
        with pytest.raises(
            OperatorError, match=r"t: reads several topics of changes \(people, pets\), each with a key"
        ):
            output(tmp_path, pets + both.format(given))
    assert output(tmp_path, pets + both.format("(mode='append')")).key == ()


def test_changes_beside_another_stream_are_not_a_table(tmp_path: Path) -> None:
    other = "other = hr.topic('other', schema='id int')\n@hr.table{}\ndef t(people, other):\n    return people"
    with pytest.raises(
        OperatorError, match=r"t: reads a topic of changes beside other streams.*make a table of the ch"
    ):
        output(tmp_path, other.format(""))
    assert output(tmp_path, other.format("(mode='append')")).key == ()


def test_changes_need_the_schema_and_the_key_of_the_table(tmp_path: Path) -> None:
    table = "\n@hr.table\ndef t(people):\n    return people\n"
    with pytest.raises(OperatorError, match="changes 'people': give the schema of the database's table, and its key"):
        graph_of(tmp_path, 'people = hr.changes("people", None, key="id")' + table)
    with pytest.raises(OperatorError, match=r"format='json': must be one of debezium"):
        graph_of(tmp_path, 'people = hr.changes("people", "id int", key="id", format="json")' + table)
    with pytest.raises(OperatorError, match=r"starting="):
        graph_of(tmp_path, 'people = hr.changes("people", "id int", key="id", starting="soon")' + table)
