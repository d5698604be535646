"""The catalog of a pipeline whose tables lie in an object store: one object, replaced only if nobody else did."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from s3_server import keys_under

from headrace.core.clock import ManualClock
from headrace.core.errors import OperatorError
from headrace.tables.catalog import PipelineCatalog, pipelines
from headrace.tables.object_store import _reason, _remedy
from headrace.tables.store_catalog import BEGINNING_MS_MAX
from headrace.tables.version_code import VersionCode
from headrace.tables.versions import time_of_ms

CODE = VersionCode(main=b"import rules\n", modules={"rules.py": b"RATE = 1\n"})


def prefix_of(tables: str) -> str:
    return tables.split("/", 3)[3] + "/"


def test_opening_the_catalog_of_a_pipeline_that_never_ran_writes_nothing(tables: str, endpoint: str) -> None:
    assert PipelineCatalog.open(tables, "shop").versions == ()
    assert pipelines(tables) == ()
    assert keys_under(endpoint, prefix_of(tables)) == []


def test_versions_are_made_cut_over_and_rolled_back(tables: str) -> None:
    clock = ManualClock()
    shop = PipelineCatalog.open(tables, "shop", clock=clock)
    shop.create_first(CODE, ["orders"])
    first_live = clock.now_ms()
    clock.advance(1000)
    shop.begin_version(VersionCode(main=b"pass\n"), ["orders", "revenue"], note="from earliest")
    shop.cut_over(2)
    again = PipelineCatalog.open(tables, "shop")
    assert pipelines(tables) == ("shop",)
    assert again.live is not None
    assert again.live.number == 2
    assert again.live.tables == ("orders", "revenue")
    before = again.history.live_at(time_of_ms(first_live))
    assert before is not None
    assert before.number == 1
    assert again.roll_back().number == 1
    assert PipelineCatalog.open(tables, "shop").live == again.live


def test_a_version_keeps_its_code_and_gives_it_back_as_files(tables: str) -> None:
    shop = PipelineCatalog.open(tables, "shop")
    shop.create_first(CODE, ["orders"])
    assert shop.code(1) == CODE
    file, beside = shop.code_files(1)
    assert Path(file).read_bytes() == CODE.main
    assert (Path(beside) / "rules.py").read_bytes() == CODE.modules["rules.py"]
    changed = VersionCode(main=b"pass\n")
    shop.declare(1, code=changed)
    assert PipelineCatalog.open(tables, "shop").version(1).code_sha256 == changed.sha256
    assert shop.code(1) == changed
    del shop
    assert not os.path.exists(file), "a copy goes with the catalog that made it"


def test_of_two_that_change_it_at_once_one_is_told(tables: str) -> None:
    mine, theirs = PipelineCatalog.open(tables, "shop"), PipelineCatalog.open(tables, "shop")
    mine.create_first(CODE, ["orders"])
    theirs.begin_version(CODE, ["orders"])
    with mine._changing():
        theirs.cut_over(2)
        with pytest.raises(OperatorError, match=r"shop: another process changed its catalog just now; try again"):
            mine._move_to(2)
    live = PipelineCatalog.open(tables, "shop").live
    assert live is not None
    assert live.number == 2
    assert len(PipelineCatalog.open(tables, "shop").intervals) == 2


def test_what_is_discarded_leaves_nothing_not_even_the_marks_of_directories(tables: str, endpoint: str) -> None:
    import boto3

    shop = PipelineCatalog.open(tables, "shop")
    shop.create_first(CODE, ["orders"])
    shop.begin_version(CODE, ["orders"])
    inside = f"{prefix_of(tables)}.headrace/shop/v2/"
    client = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1")
    for number in range(12):
        client.put_object(Bucket="lake", Key=f"{inside}orders/part-{number}", Body=b"x")
    client.put_object(Bucket="lake", Key=f"{inside}_checkpoints/orders/", Body=b"")
    assert len(keys_under(endpoint, inside)) == 14
    shop.discard(2)
    assert keys_under(endpoint, inside) == []
    assert PipelineCatalog.open(tables, "shop").version(2).state == "discarded"
    with pytest.raises(OperatorError, match="version 2 was discarded"):
        shop.cut_over(2)


def test_a_version_that_was_begun_by_a_process_that_died_is_discarded_by_the_next_change(tables: str) -> None:
    clock = ManualClock()
    shop = PipelineCatalog.open(tables, "shop", clock=clock)
    shop.create_first(CODE, ["orders"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shop, "_make_directory", lambda *_: None)
        shop.begin_version(CODE, ["orders"])
    other = PipelineCatalog.open(tables, "shop", clock=clock)
    other.begin_version(CODE, ["orders"])
    assert other.version(2).state == "building", "who began it may still be at it"
    clock.advance(BEGINNING_MS_MAX + 1)
    other.begin_version(CODE, ["orders"])
    assert [version.state for version in other.versions] == ["live", "discarded", "building", "building"]


def test_a_table_belongs_to_one_pipeline(tables: str) -> None:
    PipelineCatalog.open(tables, "shop").create_first(CODE, ["orders"])
    with pytest.raises(OperatorError, match="table orders: belongs to pipeline shop"):
        PipelineCatalog.open(tables, "other").create_first(CODE, ["orders"])


@pytest.mark.parametrize("place", ["gs://lake/x", "s3://", "http://somewhere/x", "s3://UPPER/x"])
def test_a_place_that_is_none_is_refused(place: str) -> None:
    with pytest.raises(OperatorError, match=r"not a place for tables; give a directory, or s3://BUCKET/PREFIX"):
        PipelineCatalog.open(place, "shop")


def test_other_spellings_of_the_same_place(tables: str, tmp_path: Path) -> None:
    PipelineCatalog.open(tables, "shop").create_first(CODE, ["orders"])
    assert PipelineCatalog.open(f"{tables.replace('s3://', 's3a://')}/", "shop").live is not None
    assert PipelineCatalog.open(f"file://{tmp_path}", "shop").layout.tables_dir == str(tmp_path)


def test_a_bucket_that_is_not_there_is_one_line(endpoint: str) -> None:
    with pytest.raises(OperatorError, match=r"s3://nowhere/x/.*; make the bucket first") as caught:
        PipelineCatalog.open("s3://nowhere/x", "shop").create_first(CODE, ["orders"])
    assert "\n" not in str(caught.value)


def test_how_long_it_took_is_not_taken_for_a_refusal() -> None:
    said = "Generic S3 error: Error performing GET http://127.0.0.1:9/x in 403.7ms, after 3 retries, max_retries: 3, "
    said += "retry_timeout: 20s  - HTTP error: error sending request"
    assert _remedy(said).startswith("look at AWS_ENDPOINT_URL")
    assert _reason(Exception(said)) == "Error performing GET http://127.0.0.1:9/x - HTTP error: error sending request"
    assert _remedy("Client error with status 403 Forbidden: x").startswith("set AWS_ACCESS_KEY_ID")


def test_a_store_that_does_not_answer_is_one_line(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(
        OperatorError,
        match=r"s3://lake/x/[^ ]*: Error performing GET \S+ - HTTP error: [^;]*; look at AWS_ENDPOINT_URL, ",
    ) as caught:
        PipelineCatalog.open("s3://lake/x", "shop")
    assert "\n" not in str(caught.value)
