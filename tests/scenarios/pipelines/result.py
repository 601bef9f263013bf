"""The results of runs, one JSON object a line, and the table over them."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

FILE = "results.jsonl"
_LONGEST = 100


@dataclass
class Result:
    scenario: str
    title: str
    size: str
    seed: int
    master: str
    seconds: float
    day: str
    numbers: dict = field(default_factory=dict)
    violations: list = field(default_factory=list)

    @property
    def good(self):
        return not self.violations

    @property
    def key(self):
        return self.scenario, self.size, self.seed


def save(result, folder):
    """Appended at once, so that a run which is killed goes on behind it with --resume."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / FILE).open("a") as lines:
        lines.write(json.dumps(asdict(result)) + "\n")


def load(folder):
    """The last result of each scenario, size and seed."""
    file = Path(folder) / FILE
    lines = file.read_text().splitlines() if file.exists() else []
    found = [Result(**json.loads(line)) for line in lines if line.strip()]
    return sorted({result.key: result for result in found}.values(), key=lambda result: result.key)


def table(results):
    rows = [("scenario", "size", "master", "seed", "seconds", "what was counted", "verdict"), ("---",) * 7]
    for result in results:
        counted = ", ".join(
            f"{name.replace('_', ' ')} {_number(value)}" for name, value in result.numbers.items()
        )
        said = "; ".join(_line(violation) for violation in result.violations)
        verdict = "holds" if result.good else f"VIOLATED: {said}"
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
    return "\n".join("| " + " | ".join(map(str, row)) + " |" for row in rows)


def _line(text):
    whole = " ".join(text.split()).replace("|", "/")
    return whole if len(whole) <= _LONGEST else f"{whole[:_LONGEST]} …"


def _number(value):
    return f"{value:,}" if isinstance(value, int) else str(value)
