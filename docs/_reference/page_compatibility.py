"""Which client used which API in which versions: from what the wire tests ran (docs/reference/compatibility.json)."""

import json
from pathlib import Path

from page_parts import code, table, whole

RECORDED = Path(__file__).resolve().parent.parent / "reference" / "compatibility.json"
INTRO = """What the clients in `tests/wire` sent to a Headrace broker and it took, recorded in a run in which every test
passed (`make compatibility`). A cell has the API versions that the client used; an empty one says that it never asked
in these tests, not that it would fail. The column `served` is what the broker takes; bare requests come from a socket
of the tests' own, which asks for the versions that no client uses any more."""


def page() -> str:
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))
    clients = recorded["clients"]
    header = ("API", "served", *(client["title"] for client in clients))
    rows = [
        (
            api["name"],
            code(_span(api["versions"])),
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
