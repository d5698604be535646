"""Pipelines of NEXMark's queries, one after the other in one session.

python nexmark_pipelines.py QUERIES BOOTSTRAP DIRECTORY

Each query has a directory with its file, and gets a file `done` there at its end.
"""

import sys
from pathlib import Path

import headrace as hr
from headrace.streaming.session import running


def main(queries: str, bootstrap: str, directory: str) -> None:
    with running() as spark:
        for number, query in enumerate(queries.split(",")):
            home = Path(directory) / f"{number}-{query}"
            run = hr.run(home / "nexmark.py", tables=home / "tables", bootstrap=bootstrap, spark=spark)
            run.raise_for_failures()
            (home / "done").touch()


if __name__ == "__main__":
    main(*sys.argv[1:4])
