"""`headrace doctor`: what is wrong on this machine, one line per fault, with the command that fixes it."""

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from headrace.core.findings import Finding


@click.command()
@click.option("--fetch", is_flag=True, help="Fetch what Spark needs, prepare it for quick starts, then check.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of lines.")
@click.option("--port", type=click.IntRange(1, 65535), default=9092, show_default=True, help="Port of the broker.")
@click.option("--data", type=click.Path(), default="headrace-data", show_default=True, help="Where data is kept.")
def doctor(fetch: bool, as_json: bool, port: int, data: str) -> None:
    """Check Python, Java, Spark, its jars, the port, disks, open files and memory.

    Ends with 1 if anything fails. What only pipelines need is a warning as long as Spark is not installed.
    """
    from headrace.core.findings import failed

    findings = _fetched() if fetch else []
    findings += [*_machine(port, data), *_spark(jars=not findings)]
    if as_json:
        import json

        document = {"ok": not failed(findings), "checks": [asdict(finding) for finding in findings]}
        click.echo(json.dumps(document, indent=2))
    else:
        for finding in findings:
            click.echo(_line(finding))
    sys.exit(1 if failed(findings) else 0)


def _fetched() -> "list[Finding]":
    """Nothing when all went well; then the jars are checked like the rest."""
    from headrace.cli.preparing import prepare
    from headrace.core.errors import OperatorError
    from headrace.core.findings import fail

    try:
        prepare(lambda line: click.echo(f"headrace: {line}", err=True), train=True)
    except OperatorError as error:
        text, _, remedy = str(error).rpartition("; ")
        return [fail("jars", text, remedy)]
    return []


def _machine(port: int, data: str) -> "list[Finding]":
    import resource
    import tempfile

    from headrace.core import machine, machine_checks
    from headrace.core.cache_directory import cache_directory

    cache, scratch = machine.disk(cache_directory()), machine.disk(tempfile.gettempdir())
    return [
        machine_checks.check_python(sys.version_info[:3], sys.executable),
        machine_checks.check_port(port, machine.listener("127.0.0.1", port)),
        machine_checks.check_disk("data", machine.disk(data), setting="headrace up --data DIR"),
        machine_checks.check_disk("cache", cache, setting="export HEADRACE_CACHE=DIR"),
        machine_checks.check_disk("scratch", scratch, setting="export TMPDIR=DIR", must_execute=True),
        machine_checks.check_open_files(*resource.getrlimit(resource.RLIMIT_NOFILE)),
        machine_checks.check_memory(machine.memory_available_bytes(), machine.memory_bytes()),
    ]


def _spark(jars: bool) -> "list[Finding]":
    from headrace.streaming import checks
    from headrace.streaming.jars import jars_directory, lock

    installed = checks.installed_versions(tuple(lock().packages))
    found = [*checks.check_packages(lock(), installed), checks.check_java(installed["pyspark"] is not None)]
    return [*found, checks.check_jars(lock(), jars_directory())] if jars else found


def _line(finding: "Finding") -> str:
    colours = {"ok": "green", "warn": "yellow", "fail": "red"}
    status = click.style(f"{finding.status:<4}", fg=colours[finding.status])
    remedy = f"  →  {finding.remedy}" if finding.remedy else ""
    return f"{status}  {finding.subject:<13} {finding.text}{remedy}"
