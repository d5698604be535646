"""DuckDB, set up alike for everything that reads tables: in memory, off the network, times in UTC.

UTC is not a matter of taste: Spark writes a timestamp as its UTC time without saying so, and DuckDB takes it for a
local one.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headrace.core.errors import OperatorError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

MEMORY_LIMIT_DEFAULT = "2GB"
MEMORY_LIMIT_VARIABLE = "HEADRACE_QUERY_MEMORY"


@contextmanager
def engine(memory_limit: str | None = None) -> "Iterator[DuckDBPyConnection]":
    """A connection of its own; what does not fit in the memory goes to a temporary directory, which goes with it."""
    try:
        import duckdb
    except ImportError as error:
        raise missing_extra(error) from error
    limit = memory_limit or os.environ.get(MEMORY_LIMIT_VARIABLE) or MEMORY_LIMIT_DEFAULT
    with tempfile.TemporaryDirectory(prefix="headrace-query-") as spill:
        try:
            connection = duckdb.connect(
                config={
                    "memory_limit": limit,
                    "temp_directory": spill,
                    "autoinstall_known_extensions": False,
                    "autoload_known_extensions": False,
                    "python_enable_replacements": False,  # a name in the SQL is a table, never a Python variable
                }
            )
        except duckdb.Error as error:
            raise OperatorError(f"{limit!r}: not an amount of memory; set {MEMORY_LIMIT_VARIABLE}=4GB") from error
        try:
            connection.execute("set timezone = 'UTC'")
            yield connection
        finally:
            connection.close()


@contextmanager
def one_line_errors(subject: str) -> Iterator[None]:
    """What DuckDB says, as one line."""
    import duckdb

    try:
        yield
    except duckdb.OutOfMemoryException as error:
        raise OperatorError(f"{subject}: it needs more memory; set {MEMORY_LIMIT_VARIABLE}=8GB") from error
    except duckdb.Error as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        text = " ".join(line for line in lines if not line.startswith(("LINE ", "^")))
        raise OperatorError(f"{subject}: {text.strip().rstrip('.')}") from error


def missing_extra(error: ImportError) -> OperatorError:
    return OperatorError(f"{error.name} is not installed; run: pip install 'headrace[tables]'")


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
