"""The `headrace` command in the test's own process: quick, with what it printed and its exit code."""

from __future__ import annotations

import json
from typing import Any

from click.testing import CliRunner

from headrace.cli.main import headrace


class Cli:
    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def run(self, *args: object, stdin: str | bytes = "") -> tuple[int, str, str]:
        """Exit code, stdout, stderr. A traceback is never an answer."""
        given = [*map(str, args)]
        result = CliRunner().invoke(headrace, given, input=stdin, env={"HEADRACE_BOOTSTRAP": self.bootstrap})
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert "unexpected" not in result.stderr, result.stderr
        return result.exit_code, result.stdout, result.stderr

    def ok(self, *args: object, stdin: str | bytes = "") -> str:
        code, out, err = self.run(*args, stdin=stdin)
        assert code == 0, f"{args} ended with {code}: {err}"
        return out

    def json(self, *args: object, stdin: str | bytes = "") -> Any:
        return json.loads(self.ok(*args, "--json", stdin=stdin))

    def lines(self, *args: object) -> list[Any]:
        """JSON lines."""
        return [json.loads(line) for line in self.ok(*args, "--json").splitlines()]

    def fails(self, *args: object, stdin: str | bytes = "", code: int = 1) -> str:
        """The one line that it says on stderr."""
        found, _, err = self.run(*args, stdin=stdin)
        assert found == code, f"{args} ended with {found}, not {code}: {err}"
        lines = err.strip().splitlines()
        assert lines, f"{args} failed without a word"
        assert lines[-1].startswith("headrace: "), err
        return lines[-1].removeprefix("headrace: ")
