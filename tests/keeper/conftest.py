"""Options of the keeper's suite: which seeds, and how many of them."""

from __future__ import annotations

import contextlib

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    with contextlib.suppress(ValueError):  # other suites have it too
        parser.addoption("--seed", type=int, default=None, metavar="N", help="replay one seed")
    parser.addoption("--sequences", type=int, default=None, metavar="N", help="how many seeds are tried")
    parser.addoption("--whole", action="store_true", help="all of kazoo's and Curator's tests, which take minutes")
