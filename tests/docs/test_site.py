"""The site builds, and no link in it or in the pages beside it leads nowhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from blocks import ROOT
from waits import WAIT_S_MAX

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
BESIDE = sorted(ROOT.glob("*.md"))


def test_the_site_builds_without_a_broken_link(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "properdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=WAIT_S_MAX, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "quick-start.html" in (tmp_path / "site" / "index.html").read_text(encoding="utf-8")


def test_every_page_can_be_found_from_the_index() -> None:
    nav = (ROOT / "properdocs.yml").read_text(encoding="utf-8")
    for page in (ROOT / "docs").rglob("*.md"):
        name = page.relative_to(ROOT / "docs").as_posix()
        assert f": {name}\n" in nav, f"docs/{name} is not in the nav of properdocs.yml"


@pytest.mark.parametrize("page", BESIDE, ids=lambda page: page.name)
def test_links_of_the_pages_beside_the_site_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(page.read_text(encoding="utf-8")):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), f"{page.name}: {link} leads nowhere"
        if anchor:
            assert anchor in anchors(target), f"{page.name}: {link}: no such heading"


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", heading.strip().lower())) for heading in headings}
