"""Writes docs/reference/ and docs/internals/modules.md from the code, or with --check only says what differs:
`python docs/_reference`.

The pages are committed, so that they can be read without building anything; a test runs --check, so that they cannot
go stale. Nothing here knows a command, a setting or a metric by name.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import page_commands
import page_compatibility
import page_declarations
import page_kafka_tools
import page_metrics
import page_modules
import page_python
import page_settings

DOCS = Path(__file__).resolve().parent.parent
PAGES: dict[str, Callable[[], str]] = {
    "reference/commands.md": page_commands.page,
    "reference/kafka-tools.md": page_kafka_tools.page,
    "reference/settings.md": page_settings.page,
    "reference/declarations.md": page_declarations.page,
    "reference/python.md": page_python.page,
    "reference/metrics.md": page_metrics.page,
    "reference/compatibility.md": page_compatibility.page,
    "internals/modules.md": page_modules.page,
}


def main(arguments: list[str]) -> int:
    stale = []
    for name, page in PAGES.items():
        file = DOCS / name
        text = page()
        if not file.is_file() or file.read_text(encoding="utf-8") != text:
            stale.append(name)
            if "--check" not in arguments:
                file.write_text(text, encoding="utf-8")
    if "--check" in arguments and stale:
        print(f"docs: {', '.join(stale)}: not what the code says; run `make reference`", file=sys.stderr)
        return 1
    print(f"docs: {', '.join(stale) or 'nothing'} changed")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
