"""The few forms of Markdown that the generated pages are made of."""

import re
from collections.abc import Iterable, Sequence

GENERATED = "<!-- Made by `make reference` from the code; a change here is lost. -->"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [list(header), ["---"] * len(header), *([_cell(each) for each in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def code(text: str) -> str:
    """Inline code; nothing stays nothing. A bar would end a table's cell, and there is no one way to escape it."""
    if "|" in text:
        return f"<code>{''.join(f'&#{ord(each)};' if each in '|[]<>&*_' else each for each in text)}</code>"
    return f"`{text}`" if text else ""


def block(text: str, language: str = "text") -> str:
    return f"```{language}\n{text}\n```"


def plain(text: str) -> str:
    """Text that must not be taken for markup: <name>, *, _ and the like."""
    return re.sub(r"([<*_\[\]\\])", r"\\\1", " ".join(text.split()))


def whole(title: str, *parts: str) -> str:
    """A page."""
    return "\n\n".join([GENERATED, f"# {title}", *(part for part in parts if part)]) + "\n"


def anchor(heading: str) -> str:
    """The id that a heading gets, as Python-Markdown makes it."""
    return re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower())


def _cell(text: str) -> str:
    return text.replace("|", r"\|").replace("\n", " ")
