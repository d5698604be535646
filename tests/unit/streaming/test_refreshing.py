"""What a refresh builds again, what it takes over, what it refuses; and who runs a node that versions share."""

from __future__ import annotations

from pathlib import Path

import pyarrow
import pytest
from deltalake import write_deltalake
from pipeline_files import write

from headrace.core.errors import OperatorError
from headrace.streaming.launching import Launch, launch_live, launch_next, open_pipeline
from headrace.streaming.node_locks import NodeLocks
from headrace.streaming.refreshing import rebuilt
from headrace.streaming.schemas import schema_file
from headrace.tables.catalog import PipelineCatalog

CODE = """
orders = hr.topic("orders")
payments = hr.topic("payments")

@hr.table
def clean(orders):
    return orders

@hr.view
def large(clean):
    return clean.where("amount > {limit}")

@hr.table
def totals(large):
    return large

@hr.table(into="totals", replace_where="day = 1")
def again(orders):
    return orders

@hr.to_topic("alerts")
def alerts(totals):
    return totals

@hr.table
def paid(payments):
    return payments
"""


def live(folder: Path) -> str:
    """A pipeline whose first version has its tables; gives its file."""
    file = write(folder, CODE.format(limit=10))
    layout = launch_live(file, str(folder / "tables")).catalog.layout
    for table in ("clean", "totals", "paid"):
        write_deltalake(
            layout.table_dir(1, table), pyarrow.table({"day": [1] if table != "paid" else pyarrow.array([], "int64")})
        )
    for topic in ("orders", "payments"):
        path = Path(layout.version_dir(1), schema_file(topic))
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"{topic} int\n")
    return file


def refresh(folder: Path, file: str, *tables: str) -> Launch:
    return launch_next(file, str(folder / "tables"), None, tables)[0]


def test_a_refresh_builds_what_depends_on_a_table_and_all_who_write_it(tmp_path: Path) -> None:
    _, graph = open_pipeline(write(tmp_path, CODE.format(limit=1)))
    assert rebuilt(graph, ["totals"]) == {"totals", "again", "alerts"}
    assert rebuilt(graph, ["again"]) == {"totals", "again", "alerts"}
    assert rebuilt(graph, ["clean"]) == {"clean", "totals", "again", "alerts"}
    assert rebuilt(graph, ["paid", "alerts"]) == {"paid", "alerts"}
    with pytest.raises(OperatorError, match="--refresh large: a view, which is not stored; name totals"):
        rebuilt(graph, ["large"])
    with pytest.raises(OperatorError, match=r"totls: no node of shop that writes; did you mean totals\?"):
        rebuilt(graph, ["totls"])


def test_a_refresh_takes_over_what_did_not_change_and_goes_on_when_it_is_asked_for_again(tmp_path: Path) -> None:
    file = live(tmp_path)
    write(tmp_path, CODE.format(limit=20))
    launch = refresh(tmp_path, file, "totals")
    assert (launch.version, launch.taken) == (2, {"clean": 1, "paid": 1})
    # What was inferred for the topics of nodes that are taken over counts for these; here both topics are read by them.
    schemas = [Path(launch.catalog.layout.version_dir(2), schema_file(topic)) for topic in ("orders", "payments")]
    assert [path.read_text() for path in schemas] == ["orders int\n", "payments int\n"]
    assert refresh(tmp_path, file, "totals").version == 2
    with pytest.raises(
        OperatorError, match="version 2 is a replay of this code that builds again, alerts, totals only"
    ):
        refresh(tmp_path, file)
    # What versions share is not begun again, though it has written no row.
    assert launch_live(write(tmp_path, CODE.format(limit=10)), str(tmp_path / "tables")).version == 1
    changed = write(tmp_path, CODE.format(limit=10).replace("return payments", "return None"))
    with pytest.raises(OperatorError, match="its code is not that of version 1"):
        launch_live(changed, str(tmp_path / "tables"))
    write(tmp_path, CODE.format(limit=20))
    # Of a version that has taken nodes over, the next one takes them over from their owner.
    write_deltalake(launch.catalog.layout.table_dir(2, "totals"), pyarrow.table({"day": [1]}))
    launch.catalog.cut_over(2)
    third = refresh(tmp_path, file, "alerts")
    assert third.taken == {"clean": 1, "paid": 1, "totals": 2, "again": 2}


@pytest.mark.parametrize(
    ("change", "tables", "refusal"),
    [
        (("limit", "20"), ["paid"], "again, totals cannot be taken over, .* add --refresh again"),
        (("return orders\n", "return orders.distinct()\n"), ["totals"], "clean cannot be taken over"),
        (("(clean)", "(clean=hr.stream('clean', change_feed=True))"), ["totals"], "reads every change of clean"),
        (("orders = hr.topic", "print()\norders = hr.topic"), ["totals"], "which nodes a change of the code touches"),
    ],
)  # fmt: skip
def test_a_refresh_is_refused_where_it_would_not_be_exact(
    tmp_path: Path, change: tuple[str, str], tables: list[str], refusal: str
) -> None:
    file = live(tmp_path)
    if change[0] == "limit":
        write(tmp_path, CODE.format(limit=change[1]))
    else:
        write(tmp_path, CODE.format(limit=10).replace(*change, 1))
    with pytest.raises(OperatorError, match=refusal):
        refresh(tmp_path, file, *tables)
    assert [version.number for version in PipelineCatalog.open(tmp_path / "tables", "shop").versions] == [1]


def test_a_table_that_was_never_written_cannot_be_taken_over(tmp_path: Path) -> None:
    file = write(tmp_path, CODE.format(limit=10))
    launch_live(file, str(tmp_path / "tables"))
    with pytest.raises(OperatorError, match=r"clean: version 1 has not written it yet.*run it first, or add --refresh"):
        refresh(tmp_path, file, "totals")


def test_a_shared_node_is_run_by_one_run_and_by_a_later_version_only_while_that_is_live(tmp_path: Path) -> None:
    file = live(tmp_path)
    catalog = refresh(tmp_path, file, "totals").catalog
    layout, taken = catalog.layout, catalog.version(2).taken
    with NodeLocks(layout, 1, {}) as first, NodeLocks(layout, 2, taken) as second:
        assert first.mine("clean")
        assert first.mine("totals")
        assert second.mine("totals")  # its own, in its own directory
        assert not second.mine("clean")
        catalog.cut_over(2)
        assert not second.mine("clean")  # the old run still has it
        assert second.mine("paid")
        assert not first.mine("paid")
        first.__exit__()
        assert second.mine("clean")
        with NodeLocks(layout, 1, {}) as again:
            assert not again.mine("clean")
            assert again.mine("totals")
    with NodeLocks(layout, 1, {}) as first:
        assert first.mine("clean")
