"""The code blocks of a page, and the marks above them that say how a block is run.

A mark is a comment on the line above the fence:

    <!-- not run: REASON -->   it cannot be run here
    <!-- background -->        it goes on running while the rest of the page is run
    <!-- file: NAME -->        it is the content of a file; a script is run as well
    <!-- output -->            it is what the block before it prints; … stands for anything
    <!-- spark -->             it needs Spark: tests/streaming runs it in the shared session

`file=NAME` behind the language is the same as the mark.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
RUN = ("sh", "python")
SHOWN = ("text", "json", "properties", "sql")
MARKS = ("not run", "background", "file", "output", "spark")
_MARK = re.compile(r"<!-- ([a-z ]+?)(?:: (.+?))? -->")
_FENCE = re.compile(r"( *)```(\S*)(?: file=(\S+))?\s*$")


@dataclass(frozen=True, kw_only=True)
class Block:
    page: str  # as README.md or docs/tables.md
    line: int  # of the fence
    language: str
    text: str
    mark: str = ""
    detail: str = ""

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def is_run(self) -> bool:
        return self.language in RUN and self.mark != "not run"


def pages() -> list[Path]:
    """Every page that people write; what is made from the code is checked by making it again."""
    return [
        ROOT / "README.md",
        *sorted((ROOT / "docs").glob("*.md")),
        *sorted((ROOT / "docs" / "pipelines").glob("*.md")),
    ]


def blocks(page: Path) -> list[Block]:
    return parse(page.read_text(encoding="utf-8"), page.relative_to(ROOT).as_posix())


def parse(text: str, page: str) -> list[Block]:
    found: list[Block] = []
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        opened = _FENCE.match(lines[at])
        if opened is None:
            at += 1
            continue
        indent, language = opened[1], opened[2]
        end = next((n for n in range(at + 1, len(lines)) if lines[n].strip() == "```"), None)
        if end is None:
            raise ValueError(f"{page}:{at + 1}: a block that does not end")
        above = _MARK.fullmatch(lines[at - 1].strip()) if at else None
        mark, detail = (above[1], above[2] or "") if above else ("file", opened[3]) if opened[3] else ("", "")
        body = "\n".join(line.removeprefix(indent) for line in lines[at + 1 : end])
        found.append(
            Block(
                page=page,
                line=at + 1,
                language=language,
                text=body,
                mark=mark,
                detail=detail,
            )
        )
        at = end + 1
    return found
