"""Every code block of the README and of docs/ is run, page by page, or says why it is not."""

from __future__ import annotations

from pathlib import Path

import pytest
from blocks import MARKS, ROOT, RUN, SHOWN, blocks, pages, parse
from page_run import PageRun, matches
from scenes import SCENES

PAGES = {page.relative_to(ROOT).as_posix(): page for page in pages()}
NOT_RUN_MAX = 8  # over all pages; each of them may be wrong without anybody noticing


@pytest.mark.parametrize("name", [name for name, page in PAGES.items() if any(b.is_run for b in blocks(page))])
def test_what_a_page_shows_works(name: str, tmp_path: Path) -> None:
    found = blocks(PAGES[name])
    if name in SCENES:
        SCENES[name](tmp_path)
    with PageRun(tmp_path, found) as run:
        run.run_all()


@pytest.mark.parametrize("name", PAGES)
def test_every_block_says_what_it_is_and_what_is_done_with_it(name: str) -> None:
    for block in blocks(PAGES[name]):
        assert block.language in RUN + SHOWN, f"{block.place}: ```{block.language}: write one of {RUN + SHOWN}"
        assert block.mark in ("", *MARKS), f"{block.place}: the mark {block.mark!r} is none of {MARKS}"
        if block.mark == "not run":
            assert block.detail, f"{block.place}: not run, without a reason"


def test_few_blocks_are_not_run() -> None:
    left = [block.place for page in PAGES.values() for block in blocks(page) if block.mark == "not run"]
    assert len(left) <= NOT_RUN_MAX, left


def test_a_block_and_its_mark_are_found() -> None:
    text = "Text\n\n<!-- file: a.py -->\n```python\nprint(1)\n```\n\n- item\n  ```sh\n  ls\n  ```\n"
    first, second = parse(text, "page.md")
    assert (first.language, first.text, first.mark, first.detail, first.line) == (
        "python",
        "print(1)",
        "file",
        "a.py",
        4,
    )
    assert (second.language, second.text, second.mark) == ("sh", "ls", "")


def test_a_block_without_an_end_is_refused() -> None:
    with pytest.raises(ValueError, match=r"page.md:1: a block that does not end"):
        parse("```sh\nls\n", "page.md")


@pytest.mark.parametrize(
    ("expected", "printed", "same"),
    [
        ("a b", "a b\n", True),
        ("a … c", "a anything at all c", True),
        ("a\n…\nc", "a\nb\nb\nc  \n", True),
        ("a", "a\nb", False),
        ("a.c", "abc", False),
    ],
)
def test_an_output_is_compared_with_what_was_printed(expected: str, printed: str, same: bool) -> None:
    assert matches(expected, printed) is same


def test_a_block_that_fails_fails_its_page(tmp_path: Path) -> None:
    found = parse("```sh\necho before\nexit 3\n```\n", "page.md")
    with pytest.raises(AssertionError, match=r"page.md:1: ended with code 3\nbefore"), PageRun(tmp_path, found) as run:
        run.run_all()


def test_an_output_that_is_not_printed_fails_its_page(tmp_path: Path) -> None:
    found = parse("```sh\necho one\n```\n\n<!-- output -->\n```text\ntwo\n```\n", "page.md")
    with pytest.raises(AssertionError, match=r"page.md:6: the block before"), PageRun(tmp_path, found) as run:
        run.run_all()
