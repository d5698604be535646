"""The usage text, in the two columns in which Kafka's tools print theirs."""

from collections.abc import Iterator, Sequence

from headrace.cli.kafka.options import Option

WIDTH = 80
_GAP = 2
_OPTION_WIDTH_MAX = (WIDTH - _GAP) // 2
_INDENT = "  "


def usage(options: Sequence[Option]) -> str:
    rows = [(_signature(option), _description(option)) for option in sorted(options, key=lambda each: each.name)]
    rows = [("Option", "Description"), ("------", "-----------"), *rows]
    left = min(_OPTION_WIDTH_MAX, max(len(signature) for signature, _ in rows))
    right = WIDTH - _GAP - left
    lines = []
    for signature, description in rows:
        columns = (list(_wrapped(signature, left)), list(_wrapped(description, right)))
        for at in range(max(map(len, columns))):
            first, second = (column[at] if at < len(column) else "" for column in columns)
            lines.append(f"{first:<{left + _GAP}}{second}".rstrip())
    return "\n".join(lines)


def _signature(option: Option) -> str:
    names = ", ".join(option.spellings)
    if option.value is None:
        return names
    kind = {int: "Integer", float: "Double"}.get(option.kind, "String")
    inner = f"{kind}: {option.value}" if option.value else kind
    return f"{names} [{inner}]" if option.value_optional else f"{names} <{inner}>"


def _description(option: Option) -> str:
    return option.help if option.default is None else f"{option.help} (default: {option.default})"


def _wrapped(text: str, width: int) -> Iterator[str]:
    """Lines of at most `width`; those that go on are indented. A word longer than that has a line of its own."""
    for paragraph in text.split("\n"):
        line = ""
        for word in paragraph.split(" "):
            longer = f"{line} {word}" if line else word
            if line and len(longer) > width:
                yield line
                longer = _INDENT + word
            line = longer
        yield line
