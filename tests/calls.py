"""How much is done at once, in a figure that no machine changes: the number of functions called."""

import gc
import sys


def calls_of(work):
    """How many functions it calls, ours and Python's. The collector waits: what it finds is what other tests left, and
    ending their generators counts as calls, too."""
    count = 0

    def seen(frame, event, argument):
        nonlocal count
        count += event in ("call", "c_call")

    gc.disable()
    sys.setprofile(seen)
    try:
        work()
    finally:
        sys.setprofile(None)
        gc.enable()
    return count
