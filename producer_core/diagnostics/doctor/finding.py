"""A finding: what the doctor looked at, how it is, and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from producer_core.errors import ProducerError

Level = Literal["ok", "warning", "problem"]


@dataclass(frozen=True)
class DoctorFinding:
    """What was looked at, how it is, in a sentence, and what to do where it is not well."""

    check: str
    level: Level
    text: str
    fix: str = ""


def of_error(check: str, error: ProducerError, *, level: Level = "problem") -> DoctorFinding:
    return DoctorFinding(check, level, error.what, error.fix)
