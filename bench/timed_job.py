"""Runs one command and prints, as JSON, the seconds it took and the CPU seconds of everything it started.

    python timed_job.py LOG COMMAND...

The clock stops when the command itself ends, since that is what a user waits for. PySpark does not wait for its JVM,
which would escape a parent's resource usage; this process adopts such orphans and waits for them before it counts.
"""

import contextlib
import ctypes
import json
import os
import resource
import subprocess
import sys
import time

_PR_SET_CHILD_SUBREAPER = 36
_SHOWN_LINES = 5


def main(log_path: str, command: list[str]) -> int:
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl: cannot adopt orphans")
    with open(log_path, "wb") as log:
        began = time.monotonic()
        job = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        code = job.wait()
        seconds = time.monotonic() - began
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    if code:
        with open(log_path, errors="replace") as log:
            print(" / ".join([line.strip() for line in log if line.strip()][-_SHOWN_LINES:]), file=sys.stderr)
        return 1
    print(json.dumps({"seconds": seconds, "cpu_s": used.ru_utime + used.ru_stime}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
