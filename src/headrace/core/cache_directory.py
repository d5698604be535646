"""Where what was fetched or made once is kept: jars, compiled modules, wheels, Spark's log files.

`$HEADRACE_CACHE`, or `headrace` under `$XDG_CACHE_HOME` or `~/.cache`. Everything in it can be deleted at any time.
Set-up and the build run this file before the package is installed: it imports the standard library only.
"""

import os
from collections.abc import Mapping


def cache_directory(environ: Mapping[str, str] = os.environ) -> str:
    if own := environ.get("HEADRACE_CACHE"):
        return os.path.abspath(os.path.expanduser(own))
    home = environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(os.path.abspath(home), "headrace")
