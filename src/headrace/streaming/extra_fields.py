"""Fields of a JSON record that its topic's schema does not have: found, named, counted, or kept in a column.

Spark's parser skips them silently. To look for them in every record would parse each a second time, so a record is
looked into only where it has more commas than what was parsed of it explains: an object of n members has n - 1 commas,
and so has an array of n elements. A comma inside a text, or a member that is null, costs that second look and nothing
else. Members of objects inside arrays and maps are not looked at.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import StructField, StructType

NAMES = "_headrace_extra"  # the names of a record's unknown fields as JSON; null where it has none
EXTRA_COLUMN = "_extra"  # what `extra="keep"` adds
KINDS_MAX = 100  # sets of names that are told apart in a batch
NAMES_MAX = 20  # of one record
NAME_CHARS_MAX = 100


@dataclass(frozen=True, slots=True)
class ExtraFields:
    """Of one topic: `text` is the record, `parsed` what was made of it."""

    schema: "StructType"
    text: "Column"
    parsed: "Column"

    def names(self) -> "Column":
        """An array of names, with the path of those inside; null where there are none, for most without a look."""
        from pyspark.sql import functions as F

        found = self._unknown(self.schema, self.text, "")
        for path, inner in _structs(self.schema):
            member = F.get_json_object(self.text, "$" + "".join(f"['{name}']" for name in path))
            found = F.concat(found, self._unknown(inner, member, ".".join(path) + "."))
        return F.when(self.suspicious() & (F.size(found) > 0), found)

    def names_text(self) -> "Column":
        from pyspark.sql import functions as F

        short = F.transform(self.names(), lambda name: F.substring(name, 1, NAME_CHARS_MAX))
        return F.to_json(F.slice(F.array_sort(short), 1, NAMES_MAX))

    def kept(self) -> "Column":
        """The unknown members of the record itself, each as text; null where there are none."""
        from pyspark.sql import functions as F

        known = self._known(self.schema)
        members = F.from_json(self.text, "map<string, string>")
        others = F.map_filter(members, lambda name, value: ~F.array_contains(known, name))
        return F.when(self.suspicious() & (F.size(others) > 0), others)

    def suspicious(self) -> "Column":
        """Whether the record may have more than was parsed of it; false only where it surely has not."""
        from pyspark.sql import functions as F

        explained = F.lit(0)
        for column in self.schema.fields:
            explained = explained + _explained(self.parsed, column)
        before = F.call_function("substring_index", self.text, F.lit(","), explained)
        return F.octet_length(before) < F.octet_length(self.text)

    def _unknown(self, schema: "StructType", text: "Column", prefix: str) -> "Column":
        from pyspark.sql import functions as F

        names = F.array_except(F.json_object_keys(text), self._known(schema))
        if prefix:
            names = F.transform(names, lambda name: F.concat(F.lit(prefix), name))
        return F.coalesce(names, F.array().cast("array<string>"))

    def _known(self, schema: "StructType") -> "Column":
        from pyspark.sql import functions as F

        return F.array(*[F.lit(name) for name in schema.names]).cast("array<string>")


def _explained(parent: "Column", column: "StructField") -> "Column":
    """The commas in or before a member, if it was parsed; one for the first that has none."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, MapType, StructType

    value = parent.getField(column.name)
    if isinstance(column.dataType, StructType):
        inner = [_explained(value, each) for each in column.dataType.fields]
        return F.coalesce(sum(inner[1:], inner[0]), F.lit(0)) if inner else F.lit(0)
    if isinstance(column.dataType, ArrayType | MapType):
        return F.when(value.isNull(), F.lit(0)).otherwise(F.greatest(F.size(value), F.lit(1)))
    return value.isNotNull().cast("int")


def _structs(schema: "StructType", path: tuple[str, ...] = ()) -> "list[tuple[tuple[str, ...], StructType]]":
    from pyspark.sql.types import StructType

    found = []
    for column in schema.fields:
        if isinstance(column.dataType, StructType) and "'" not in column.name:
            found += [((*path, column.name), column.dataType), *_structs(column.dataType, (*path, column.name))]
    return found


def observed() -> "list[Column]":
    """What a query reports of NAMES; bounded, however many names a producer makes up."""
    from pyspark.sql import functions as F

    return [F.expr(f"approx_top_k({NAMES}, {KINDS_MAX})").alias("extra")]


def counted(metrics: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Records by unknown field, the most frequent first, from what queries reported."""
    sums: dict[str, int] = {}
    for each in metrics:
        for kind in each.get("extra") or ():
            for name in json.loads(kind.get("item") or "[]"):
                sums[name] = sums.get(name, 0) + int(kind["count"])
    return dict(sorted(sums.items(), key=lambda entry: (-entry[1], entry[0])))
