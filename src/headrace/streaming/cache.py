"""Files of the cache directory: made whole, or not at all."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from headrace.core.errors import OperatorError


def made(directory: str) -> str:
    """The directory, which exists then."""
    try:
        os.makedirs(directory, exist_ok=True)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise OperatorError(
            f"{directory}: cannot be made: {reason}; set HEADRACE_CACHE to a writable directory"
        ) from error
    return directory


@contextmanager
def replacing(path: str) -> Iterator[str]:
    """A temporary name beside `path`, which takes its place when the block ends well: never a torn file."""
    descriptor, temporary = tempfile.mkstemp(prefix=".", suffix=".part", dir=os.path.dirname(path))
    os.close(descriptor)
    try:
        yield temporary
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
