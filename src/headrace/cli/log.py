"""`headrace log check | repair`: the files of a log directory whose broker is stopped."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.lazy_group import LazyGroup

if TYPE_CHECKING:
    from headrace.core.files import Disk
    from headrace.log.checking import CheckedDirectory, LogFinding

_directories = click.argument(
    "directories", nargs=-1, required=True, metavar="DIR...", type=click.Path(exists=True, file_okay=False)
)
_json = click.option("--json", "as_json", is_flag=True, help="One JSON document instead of lines.")


@click.group(cls=LazyGroup, places={})
def log() -> None:
    """Check and repair the files of a stopped broker, Headrace's or Apache Kafka's."""


@log.command(short_help="What is damaged in a log directory.")
@_directories
@_json
def check(directories: tuple[str, ...], as_json: bool) -> None:
    """Read every batch, index and checkpoint below DIR, one of the directories of log.dirs.

    Prints one line per finding: file, position, offsets, what is wrong, what a repair does and what it loses.
    Ends with 0 if there are none, with 1 otherwise. Changes nothing; the broker must be stopped.

    \b
    Examples:
      headrace log check ./headrace-data
      headrace log check /disks/a /disks/b --json
    """
    with _checked(directories) as (found, _):
        findings = [finding for each in found for finding in each.all_findings]
        if as_json:
            _print_json(found, findings, [])
        else:
            _print(found, findings)
    sys.exit(1 if findings else 0)


@log.command(short_help="Repair what is damaged, with the least loss.")
@_directories
@click.option("--dry-run", "dry_run", is_flag=True, help="Print what would be done, and change nothing.")
@click.option("--execute", is_flag=True, help="Do it.")
@_json
def repair(directories: tuple[str, ...], dry_run: bool, execute: bool, as_json: bool) -> None:
    """Rebuild indexes, restore headers, cut torn ends, and put empty batches in place of unreadable ones.

    Every file that loses anything is kept beside the repaired one as `.damaged`. Offsets never change: what is lost is
    named, and readers pass over it. Ends with 0 if all is well afterwards, with 1 if something is left.

    \b
    Examples:
      headrace log repair ./headrace-data --dry-run
      headrace log repair ./headrace-data --execute
    """
    if dry_run == execute:
        raise click.UsageError("give --dry-run to see what would be done, or --execute to do it")
    aside: list[str] = []
    with _checked(directories) as (found, disk):
        findings = [finding for each in found for finding in each.all_findings]
        left = findings
        if execute:
            aside, left = _execute(found, disk)
        if as_json:
            _print_json(found, findings, aside)
        else:
            _print(found, findings)
            for path in aside:
                click.echo(f"kept as {path}")
            if execute and findings:
                click.echo(f"repaired; {len(left)} findings are left" if left else "repaired")
    sys.exit(1 if left else 0)


def _execute(found: "list[CheckedDirectory]", disk: "Disk") -> "tuple[list[str], list[LogFinding]]":
    """Repairs, and checks again."""
    import time

    from headrace.log.checking import check_directory
    from headrace.log.repairing import repair_directory

    aside, left = [], []
    for directory in found:
        if directory.all_findings:
            aside += repair_directory(directory, disk, int(time.time() * 1000))
            left += check_directory(directory.path, disk).all_findings
    return aside, left


@contextmanager
def _checked(directories: tuple[str, ...]) -> "Iterator[tuple[list[CheckedDirectory], Disk]]":
    """The directories, locked and checked; one line where that cannot be done."""
    from headrace.core.errors import HeadraceError
    from headrace.core.files import DirectoryLock, Disk
    from headrace.core.telemetry import configure_logging
    from headrace.log.checking import check_directory

    configure_logging("error")
    locks = []
    try:
        for path in directories:
            locks.append(DirectoryLock(path))
        disk = Disk()
        found = [check_directory(path, disk) for path in directories]
        for directory in found:
            _check_journal(directory, disk)
        yield found, disk
    except HeadraceError as error:
        raise click.ClickException(str(error)) from error
    except OSError as error:
        raise click.ClickException(f"{error.filename or directories[0]}: {error.strerror or error}") from error
    finally:
        for lock in locks:
            lock.release()


def _check_journal(directory: "CheckedDirectory", disk: "Disk") -> None:
    """The journal of topics, by the reader that a broker has; a directory of Kafka's has none."""
    import os

    from headrace.broker.catalog import JOURNAL_NAME
    from headrace.broker.journal import MirroredJournal
    from headrace.core.errors import OperatorError
    from headrace.log.checking import LogFinding

    path = os.path.join(directory.path, JOURNAL_NAME)
    journal = MirroredJournal([directory.path], JOURNAL_NAME, disk, list)
    try:
        if os.path.exists(path):
            journal.load()
    except OperatorError as error:
        directory.findings.append(LogFinding(path=path, what=str(error).removeprefix(path).lstrip(":, "), action=""))
    finally:
        journal.close()


def _print(found: "list[CheckedDirectory]", findings: "list[LogFinding]") -> None:
    for finding in findings:
        click.echo(finding.line)
    partitions = [partition for directory in found for partition in directory.partitions]
    size = sum(segment.size for partition in partitions for segment in partition.segments)
    text = f"{len(partitions)} partitions and {size:,} bytes were read: {len(findings) or 'no'} findings"
    click.echo(text, err=bool(findings))


def _print_json(found: "list[CheckedDirectory]", findings: "list[LogFinding]", aside: list[str]) -> None:
    import json

    document: dict[str, Any] = {
        "ok": not findings,
        "partitions": sum(len(directory.partitions) for directory in found),
        "findings": [asdict(finding) for finding in findings],
        "kept": aside,
    }
    click.echo(json.dumps(document, indent=2))
