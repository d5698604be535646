"""Delta's types as DuckDB writes them. No IO."""

from typing import Any

_PRIMITIVES = {
    "string": "varchar",
    "byte": "tinyint",
    "short": "smallint",
    "integer": "integer",
    "long": "bigint",
    "float": "float",
    "double": "double",
    "boolean": "boolean",
    "binary": "blob",
    "date": "date",
    "timestamp": "timestamptz",
    "timestamp_ntz": "timestamp",
}


def sql_type(kind: Any) -> str | None:
    """None for a type that DuckDB has no equal of, such as variant."""
    match getattr(kind, "type", None):
        case "struct":
            fields = [(field.name, sql_type(field.type)) for field in kind.fields]
            if not fields or any(inner is None for _, inner in fields):
                return None
            return "struct(" + ", ".join(f'"{_escaped(name)}" {inner}' for name, inner in fields) + ")"
        case "array":
            element = sql_type(kind.element_type)
            return None if element is None else f"{element}[]"
        case "map":
            key, value = sql_type(kind.key_type), sql_type(kind.value_type)
            return None if key is None or value is None else f"map({key}, {value})"
        case str(name):
            return name if name.startswith("decimal(") else _PRIMITIVES.get(name)
        case _:
            return None


def _escaped(name: str) -> str:
    return name.replace('"', '""')
