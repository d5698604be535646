"""Which client used which API in which versions: from what the wire tests ran (docs/reference/compatibility.json)."""

import json
from pathlib import Path

from page_parts import code, table, whole

RECORDED = Path(__file__).resolve().parent.parent / "reference" / "compatibility.json"
INTRO = """What the tests in `tests/wire` really sent to a Headrace broker, and what it answered, as recorded while they
passed (`make compatibility`). A number is an API version that a test of that client went through; an empty cell says
that this client never asked for it, not that it would fail. The first column of versions is what the broker offers;
the column of bare requests is a socket of the tests' own, which asks for each version in turn."""


def page() -> str:
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))
    clients = recorded["clients"]
    header = ("API", "offered", *(client["title"] for client in clients))
    rows = [
        (
            api["name"],
            code(_span(range(api["low"], api["high"] + 1))),
            *(_cell(client, api["name"]) for client in clients),
        )
        for api in recorded["apis"]
    ]
    versions = table(("client", "version"), [(each["title"], ", ".join(each["versions"])) for each in clients])
    return whole("Clients and APIs", " ".join(INTRO.split()), versions, table(header, rows))


def _cell(client: dict[str, object], api: str) -> str:
    apis = client["apis"]
    return code(_ranges(apis[api])) if api in apis else ""


def _ranges(versions: list[int]) -> str:
    """0, 1, 2, 5 is 0-2, 5."""
    runs: list[list[int]] = []
    for version in sorted(versions):
        if runs and version == runs[-1][-1] + 1:
            runs[-1].append(version)
        else:
            runs.append([version])
    return ", ".join(_span(run) for run in runs)


def _span(versions: "range | list[int]") -> str:
    return str(versions[0]) if len(versions) == 1 else f"{versions[0]}-{versions[-1]}"
