"""The result of a run of a pipeline job, and the table of many results."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.scenarios.result import SavedResult, markdown_table

_LONGEST = 100


@dataclass
class Result(SavedResult):
    scenario: str
    title: str
    size: str
    seed: int
    master: str
    seconds: float
    day: str
    numbers: dict = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)
    notes: dict = field(default_factory=dict)


def table(results):
    rows = [("scenario", "size", "master", "seed", "seconds", "counted", "verdict"), ("---",) * 7]
    for result in results:
        counted = ", ".join(
            f"{name.replace('_', ' ')} {_number(value)}" for name, value in result.numbers.items()
        )
        found = "; ".join(_line(violation) for violation in result.violations)
        verdict = "holds" if result.good else f"VIOLATED: {found}"
        rows.append(
            (
                result.scenario,
                result.size,
                result.master,
                result.seed,
                f"{result.seconds:,.0f}",
                counted,
                verdict,
            )
        )
    return markdown_table(rows)


def _line(text):
    whole = " ".join(text.split()).replace("|", "/")
    return whole if len(whole) <= _LONGEST else f"{whole[:_LONGEST]} …"


def _number(value):
    return f"{value:,}" if isinstance(value, int) else str(value)
