"""`headrace table`: what it prints, what it asks, how it ends."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result
from delta_tables import write
from shop import make_shop, replayed

from headrace.cli.main import headrace


@pytest.fixture(scope="module")
def shop_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For commands that only read."""
    path = tmp_path_factory.mktemp("shop")
    make_shop(path)
    write(path / "plain", "select i, 'x' || i as s from range(150) t(i)")
    return path


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """For commands that change something: versions 0 to 2, of which the last overwrote the others."""
    for sql, mode in (("select 1 i", "append"), ("select 2 i", "append"), ("select 3 i", "overwrite")):
        write(tmp_path / "t", sql, mode=mode)
    return tmp_path


def table(tables: Path, *arguments: str, input: str | None = None) -> Result:
    return CliRunner().invoke(headrace, ["table", *arguments, "--tables", str(tables)], input=input)


def lines(result: Result) -> list[str]:
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()


def test_list_shows_every_table(shop_dir: Path) -> None:
    header, *rows = lines(table(shop_dir, "list"))
    assert header.split() == ["table", "pipeline", "version", "rows", "files", "size"]
    assert [row.split()[:5] for row in rows] == [
        ["clean_orders", "shop", "v1", "2", "30"],
        ["plain", "-", "0", "150", "1"],
        ["revenue", "shop", "v1", "1", "2"],
        ["_quarantine/clean_orders", "shop", "v1", "0", "2"],
    ]
    found = json.loads(table(shop_dir, "list", "--json").stdout)
    assert [(each["name"], each["kind"], each["rows"]) for each in found][:2] == [
        ("clean_orders", "pipeline", 30),
        ("plain", "plain", 150),
    ]


def test_list_shows_what_was_not_written_and_what_is_broken(tmp_path: Path) -> None:
    shop = make_shop(tmp_path)
    shop.declare(1, tables=["clean_orders", "revenue", "later"])
    log = Path(shop.layout.table_dir(1, "revenue"), "_delta_log", f"{0:020d}.json")
    log.write_text("{")
    found = {each["name"]: each["problem"] for each in json.loads(table(tmp_path, "list", "--json").stdout)}
    assert found["clean_orders"] is None
    assert found["later"] == "not written yet"
    assert "revenue" in found["revenue"]
    assert "\n" not in found["revenue"]


def test_an_empty_directory_has_no_tables_and_a_missing_one_is_an_error(tmp_path: Path) -> None:
    assert lines(table(tmp_path, "list")) == [f"no tables in {tmp_path}"]
    result = table(tmp_path / "none", "list")
    assert result.exit_code == 1
    assert (
        result.stderr == f"headrace: {tmp_path / 'none'}: no such directory; give --tables DIR or set HEADRACE_TABLES\n"
    )


def test_show_tells_what_there_is(shop_dir: Path) -> None:
    text = "\n".join(lines(table(shop_dir, "show", "clean_orders")))
    for part in (
        "pipeline    shop, version 1 is live",
        "rows        30",
        "in 6 files",
        "partitions  day",
        "quarantine  2 rows; see: headrace table query 'from _quarantine.clean_orders'",
        "order_id  long",
        "amount is positive  quarantine       2       30              1",
    ):
        assert part in text
    found = json.loads(table(shop_dir, "show", "clean_orders", "--json").stdout)
    assert (found["quarantined"], found["live_version"], found["partitions"], found["version"]) == (2, 1, ["day"], 2)
    assert found["expectations"] == [
        {"name": "amount is positive", "action": "quarantine", "failed": 2, "rows": 30, "batch_last_failed": 1}
    ]


def test_show_of_a_quarantine(shop_dir: Path) -> None:
    found = json.loads(table(shop_dir, "show", "_quarantine/clean_orders", "--json").stdout)
    assert [column["name"] for column in found["columns"]] == ["topic", "partition", "offset", "reason", "value"]


def test_history_shows_what_made_each_version(shop_dir: Path) -> None:
    header, *rows = lines(table(shop_dir, "history", "clean_orders"))
    assert header.split() == ["version", "time", "operation", "rows", "node", "batch", "made", "from"]
    assert [row.split()[0] for row in rows] == ["2", "1", "0"]
    assert rows[0].split()[2:] == ["WRITE", "+10", "clean_orders", "2", "orders", "0:20-26", "1:20-24"]
    assert lines(table(shop_dir, "history", "revenue"))[1].split("  ")[-1] == "table clean_orders v1-v2"


def test_history_with_offsets_follows_tables_down_to_topics(shop_dir: Path) -> None:
    rows = lines(table(shop_dir, "history", "revenue", "--offsets"))
    assert rows[1].endswith("orders 0:10-16,20-26 1:10-14,20-24")
    newest = json.loads(table(shop_dir, "history", "revenue", "--offsets", "--json").stdout)[0]
    assert newest["offsets"] == {"orders": {"0": [[10, 16], [20, 26]], "1": [[10, 14], [20, 24]]}}
    assert newest["sources"] == [{"table": "clean_orders", "versions": [1, 2]}]
    assert (newest["node"], newest["batch"], newest["rows_added"]) == ("revenue", 1, 1)


def test_history_is_limited_and_says_so(shop_dir: Path) -> None:
    result = table(shop_dir, "history", "clean_orders", "--limit", "1")
    assert len(lines(result)) == 2
    assert result.stderr == "2 older; --limit 0 shows all\n"
    assert len(lines(table(shop_dir, "history", "clean_orders", "--limit", "0"))) == 4


def test_query_prints_columns(shop_dir: Path) -> None:
    sql = "select customer, sum(amount) as total from clean_orders group by all order by all"
    assert lines(table(shop_dir, "query", sql)) == [
        "customer  total",
        "c0        135.0",
        "c1        145.0",
        "c2        155.0",
    ]


def test_query_prints_json_and_csv_in_full(shop_dir: Path) -> None:
    rows = json.loads(table(shop_dir, "query", "from plain order by i", "--json").stdout)
    assert len(rows) == 150
    assert rows[1] == {"i": 1, "s": "x1"}
    assert json.loads(table(shop_dir, "query", "from plain where i < 0", "--json").stdout) == []
    text = table(shop_dir, "query", "select i, s, null as n, 'a,\"b' as q from plain order by i", "--csv").stdout
    found = list(csv.reader(io.StringIO(text)))
    assert len(found) == 151
    assert found[:2] == [["i", "s", "n", "q"], ["0", "x0", "", 'a,"b']]


def test_query_shows_a_hundred_rows_unless_told_otherwise(shop_dir: Path) -> None:
    result = table(shop_dir, "query", "from plain order by i")
    assert len(lines(result)) == 101
    assert result.stderr == "the first 100 rows; --limit 0 shows all\n"
    assert len(lines(table(shop_dir, "query", "from plain", "--limit", "0"))) == 151
    assert table(shop_dir, "query", "from plain", "--limit", "150").stderr == ""
    assert len(json.loads(table(shop_dir, "query", "from plain", "--json", "--limit", "7").stdout)) == 7
    assert table(shop_dir, "query", "from plain where i < 0").stderr == "no rows\n"


def test_query_reads_the_sql_from_stdin(shop_dir: Path) -> None:
    assert lines(table(shop_dir, "query", "-", input="select count(*) as n from plain\n")) == ["  n", "150"]


def test_query_of_the_past(tmp_path: Path) -> None:
    cut_at = replayed(make_shop(tmp_path))
    sql = "select max(amount)::integer as m from clean_orders"
    before = (cut_at - timedelta(milliseconds=1)).isoformat()
    assert lines(table(tmp_path, "query", sql))[1] == "58"
    assert lines(table(tmp_path, "query", sql, "--at", before))[1] == "29"
    assert lines(table(tmp_path, "query", sql, "--at", "now"))[1] == "58"
    assert lines(table(tmp_path, "query", sql, "--version", "0"))[1] == "18"
    result = table(tmp_path, "query", sql, "--at", "3 days ago")
    assert result.exit_code == 1
    assert "nothing was live at" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("query", "from clean_order"), 1, "headrace: clean_order: no such table in"),
        (("query", "from plain", "--version", "0", "--at", "now"), 2, "exclude each other"),
        (("query", "from plain", "--json", "--csv"), 2, "exclude each other"),
        (("query", "from plain", "--at", "soon"), 1, "headrace: 'soon': not a time"),
        (("show", "plane"), 1, "did you mean plain?"),
        (("history", "nothing-like-it"), 1, "no such table in"),
        (("diff", "plain", "0", "9"), 1, "headrace: plain: version 9 is outside [0, 0]"),
        (("diff", "plain", "x", "9"), 2, "Invalid value"),
        (("restore", "plain", "7"), 1, "version 7 is outside [0, 0]"),
        (("optimize", "plain", "--zorder", "z"), 1, "no column z"),
    ],
)
def test_errors_are_one_line_with_an_exit_code(
    shop_dir: Path, arguments: tuple[str, ...], code: int, said: str
) -> None:
    result = table(shop_dir, *arguments)
    assert result.exit_code == code
    assert said in result.stderr
    assert "Traceback" not in result.output
    if code == 1:
        assert result.stderr.count("\n") == 1


def test_diff_counts_and_shows_samples(mine: Path) -> None:
    assert lines(table(mine, "diff", "t", "0", "2")) == [
        "same                          0",
        "only in version 0             1",
        "only in version 2             1",
        "",
        "             i",
        "- version 0  1",
        "+ version 2  3",
    ]
    found = json.loads(table(mine, "diff", "t", "0", "1", "--json").stdout)
    assert (found["same"], found["only_a"], found["only_b"], found["equal"]) == (1, 0, 1, False)


def test_diff_by_key_marks_what_changed(tmp_path: Path) -> None:
    write(tmp_path / "t", "select 1 k, 'old' v, 5 w")
    write(tmp_path / "t", "select 1 k, 'new' v, 5 w", mode="overwrite")
    text = lines(table(tmp_path, "diff", "t", "0", "1", "--key", "k"))
    assert text[1].split() == ["differing", "1"]
    assert [line.split() for line in text[-2:]] == [
        ["~", "version", "0", "1", "*old", "5"],
        ["~", "version", "1", "1", "*new", "5"],
    ]


def test_restore_asks_first(mine: Path) -> None:
    result = table(mine, "restore", "t", "1", input="n\n")
    assert result.exit_code == 1
    assert "Restore t from version 2 to what it was at version 1? [y/N]" in result.stderr
    assert "nothing was changed" in result.stderr
    assert lines(table(mine, "restore", "t", "1", input="y\n")) == ["t: version 3 is what version 1 was"]
    assert lines(table(mine, "query", "select i from t order by i")) == ["i", "1", "2"]


def test_nothing_is_restored_when_nobody_answers(mine: Path) -> None:
    result = table(mine, "restore", "t", "1", input="")
    assert result.exit_code == 2
    assert "there is no terminal to ask on; add --yes" in result.stderr
    assert lines(table(mine, "query", "select i from t")) == ["i", "3"]


def test_vacuum_asks_first_and_a_dry_run_never_removes(mine: Path) -> None:
    files = list((mine / "t").glob("*.parquet"))
    text = lines(table(mine, "vacuum", "t", "--retention-hours", "0", "--dry-run"))
    assert text[0] == "t: 2 files would be removed"
    assert len(text) == 3
    result = table(mine, "vacuum", "t", "--retention-hours", "0", input="n\n")
    assert result.exit_code == 1
    assert "Remove 2 files of t that only versions older than 0 hours need?" in result.stderr
    assert sorted(files) == sorted((mine / "t").glob("*.parquet"))
    assert lines(table(mine, "vacuum", "t")) == ["t: nothing to remove that is older than 168 hours"]
    assert lines(table(mine, "vacuum", "t", "--retention-hours", "0", "--yes")) == ["t: 2 files removed"]
    assert len(list((mine / "t").glob("*.parquet"))) == 1


def test_optimize_says_what_it_did(mine: Path) -> None:
    table(mine, "restore", "t", "1", "--yes")
    assert lines(table(mine, "optimize", "t")) == ["t: 2 files became 1"]
    assert "nothing to do" in lines(table(mine, "optimize", "t"))[0]
    assert json.loads(table(mine, "optimize", "t", "--zorder", "i", "--json").stdout)["metrics"]["numFilesAdded"] == 1


def test_upkeep_of_a_pipelines_table_says_whose_it_is(tmp_path: Path) -> None:
    make_shop(tmp_path)
    result = table(tmp_path, "restore", "clean_orders", "0", input="n\n")
    assert "It belongs to pipeline shop, which may be writing it now." in result.stderr


def test_a_broken_link_is_a_warning_on_stderr(tmp_path: Path) -> None:
    make_shop(tmp_path)
    (tmp_path / "revenue").unlink()
    (tmp_path / "revenue").mkdir()
    result = table(tmp_path, "list", "--json")
    assert "headrace: warning: " in result.stderr
    assert json.loads(result.stdout)


# Real processes: start-up, terminals, pipes.


def command(tables: Path, *arguments: str) -> list[str]:
    program = "from headrace.cli.main import main; main()"
    return [sys.executable, "-c", program, "table", *arguments, "--tables", str(tables)]


def test_a_real_process_answers_and_loads_neither_spark_nor_pandas(shop_dir: Path) -> None:
    program = (
        "import sys\n"
        "from headrace.cli.main import headrace\n"
        f"arguments = ['table', 'query', 'select count(*) as n from plain', '--tables', {str(shop_dir)!r}]\n"
        "headrace(arguments, standalone_mode=False)\n"
        "heavy = {'pyspark', 'py4j', 'pandas', 'pyarrow', 'numpy', 'headrace.broker', 'headrace.streaming'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["n", "150"]
    assert done.stderr.strip() == "[]"


def test_help_loads_neither_duckdb_nor_deltalake() -> None:
    program = (
        "import sys\n"
        "from headrace.cli.main import headrace\n"
        "headrace(['table', 'query', '--help'], standalone_mode=False)\n"
        "print(sorted({'duckdb', 'deltalake', 'headrace.tables'} & set(sys.modules)), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


def on_terminal(arguments: list[str], columns: int, **variables: str) -> str:
    """What a process prints on a real (pseudo) terminal of that width."""
    leader, follower = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(columns), "LINES": "40", "TERM": "xterm", **variables}
    with subprocess.Popen(
        arguments, stdout=follower, stderr=follower, stdin=subprocess.DEVNULL, env=environment
    ) as process:
        os.close(follower)
        output = b""
        try:
            while data := os.read(leader, 65536):
                output += data
        except OSError:  # Linux says so when the other end is closed
            pass
        os.close(leader)
    assert process.returncode == 0
    return output.decode().replace("\r\n", "\n")


def test_a_terminal_gets_colours_and_lines_that_fit_and_a_pipe_neither(shop_dir: Path) -> None:
    arguments = command(shop_dir, "query", "select i, repeat('long ', 40) as text from plain limit 2")
    shown = on_terminal(arguments, 60)
    assert "\x1b[" in shown
    assert all(len(line) <= 60 for line in click.unstyle(shown).splitlines())
    assert "\x1b[" not in on_terminal(arguments, 60, NO_COLOR="1")
    piped = subprocess.run(arguments, capture_output=True, text=True, check=True).stdout
    assert "\x1b[" not in piped
    assert all(len(line) > 200 for line in piped.splitlines()[1:])


def test_a_reader_that_stops_reading_is_no_error(shop_dir: Path) -> None:
    arguments = command(shop_dir, "query", "select i from range(300000) t(i)", "--csv")
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"i\n"
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0
