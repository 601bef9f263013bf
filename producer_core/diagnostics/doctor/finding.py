"""The finding of a check."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from producer_core.errors import ProducerError

Level = Literal["ok", "warning", "problem"]


@dataclass(frozen=True)
class DoctorFinding:
    """The name of a check, its result in a sentence, and a fix where there is a problem."""

    check: str
    level: Level
    text: str
    fix: str = ""


def of_error(check: str, error: ProducerError, *, level: Level = "problem") -> DoctorFinding:
    return DoctorFinding(check, level, error.what, error.fix)
