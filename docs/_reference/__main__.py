"""Writes docs/reference/ from the code: `python docs/_reference`, or with --check only says what differs.

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
import page_python
import page_settings

REFERENCE = Path(__file__).resolve().parent.parent / "reference"
PAGES: dict[str, Callable[[], str]] = {
    "commands.md": page_commands.page,
    "kafka-tools.md": page_kafka_tools.page,
    "settings.md": page_settings.page,
    "declarations.md": page_declarations.page,
    "python.md": page_python.page,
    "metrics.md": page_metrics.page,
    "compatibility.md": page_compatibility.page,
}


def main(arguments: list[str]) -> int:
    stale = []
    for name, page in PAGES.items():
        file = REFERENCE / name
        text = page()
        if not file.is_file() or file.read_text(encoding="utf-8") != text:
            stale.append(name)
            if "--check" not in arguments:
                file.write_text(text, encoding="utf-8")
    if "--check" in arguments and stale:
        print(f"docs/reference: {', '.join(stale)}: not what the code says; run `make reference`", file=sys.stderr)
        return 1
    print(f"docs/reference: {', '.join(stale) or 'nothing'} changed")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
