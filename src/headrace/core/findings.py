"""What a check found: fine, doubtful or wrong, in one line, with the command that fixes it."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    OK = "ok"
    WARN = "warn"  # works, or is not needed by everybody
    FAIL = "fail"


@dataclass(frozen=True, kw_only=True)
class Finding:
    subject: str
    status: Status
    text: str
    remedy: str = ""  # a command or a setting; empty when nothing is to be done


def failed(findings: Sequence[Finding]) -> bool:
    return any(finding.status is Status.FAIL for finding in findings)


def ok(subject: str, text: str) -> Finding:
    return Finding(subject=subject, status=Status.OK, text=text)


def warn(subject: str, text: str, remedy: str) -> Finding:
    return Finding(subject=subject, status=Status.WARN, text=text, remedy=remedy)


def fail(subject: str, text: str, remedy: str) -> Finding:
    return Finding(subject=subject, status=Status.FAIL, text=text, remedy=remedy)
