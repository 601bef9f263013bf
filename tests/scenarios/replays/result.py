"""The result of a replay under faults, and the table of many results."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from tests.scenarios.replays.invariants import check, overtakers
from tests.scenarios.result import SavedResult, markdown_table


@dataclass
class Result(SavedResult):
    scenario: str
    delivery: str
    seed: int
    dead_letters: int
    there: int = 0
    kills: int = 0
    stops: int = 0
    faults: int = 0
    broker_faults: int = 0
    acknowledged: int = 0
    landed: int = 0
    dead: int = 0
    doubtful: int = 0
    missing: int = 0
    duplicates: int = 0
    order_breaks: int = 0
    seconds: float = 0.0
    violations: list[str] = field(default_factory=list)
    notes: dict = field(default_factory=dict)
    expected: str = "none"

    @property
    def shows_violation(self):
        return self.duplicates


def judge(stage, seconds):
    """Return the result of a run: the state of the store and of the log, in numbers and sentences."""
    evidence = stage.evidence()
    violations = [f"{one.invariant}: {one.text}" for one in check(evidence)] + stage.problems
    operation = evidence.operation
    return Result(
        scenario=stage.name, delivery=stage.delivery, seed=stage.seed, dead_letters=stage.dead_letters,
        there=len(evidence.on_topic), kills=stage.kills, stops=stage.stops, faults=stage.faults,
        broker_faults=stage.broker_faults, acknowledged=operation.acknowledged, landed=operation.landed,
        dead=sum(state == "dead" for state in evidence.state.values()), doubtful=len(evidence.doubtful),
        missing=len(evidence.missing()), duplicates=sum(evidence.counts[n] - 1 for n in evidence.duplicated()),
        order_breaks=len(overtakers(evidence)), seconds=round(seconds, 1), violations=violations,
        notes={**stage.notes, "in words": operation.message, "proxy": stage.counts()},
    )  # fmt: skip


def compared(stage, seconds):
    """Return the result of a peer, which is only its number of duplicates."""
    return Result(
        stage.name, stage.delivery, stage.seed, stage.dead_letters, len(stage.stored.on_topic), stage.kills,
        duplicates=stage.duplicates(), seconds=round(seconds, 1), expected="violation",
    )  # fmt: skip


def broken(stage, error, seconds):
    """Return the result of a scenario that ended with an error."""
    text = f"broke down: {type(error).__name__}: {error} {stage.errors()}"
    return Result(
        stage.name, stage.delivery, stage.seed, stage.dead_letters, kills=stage.kills, stops=stage.stops,
        seconds=round(seconds, 1), violations=[text, *stage.problems], notes=stage.notes,
    )  # fmt: skip


_SUMS = ("kills", "stops", "faults", "broker_faults", "acknowledged", "landed", "dead", "doubtful", "missing", "duplicates",
         "order_breaks")  # fmt: skip
_COLUMNS = (
    "scenario",
    "delivery",
    "dead letters",
    "seeds",
    *(name.replace("_", " ") for name in _SUMS),
    "verdict",
)


def table(results):
    """Return a table with one row per scenario and size."""
    groups = defaultdict(list)
    for result in results:
        groups[result.scenario, result.delivery, result.dead_letters].append(result)
    rows = [_COLUMNS, ("---", "---", "---:", "---", *["---:"] * len(_SUMS), "---")]
    for (name, delivery, dead_letters), runs in sorted(groups.items(), key=_order):
        sums = [f"{sum(getattr(run, column) for run in runs):,}" for column in _SUMS]
        seeds = ", ".join(str(run.seed) for run in sorted(runs, key=lambda run: run.seed))
        bad = [run for run in runs if not run.good]
        verdict = (
            runs[0].verdict if not bad else f"{bad[0].verdict} ({', '.join(str(run.seed) for run in bad)})"
        )
        rows.append((name, delivery, f"{dead_letters:,}", seeds, *sums, verdict))
    return markdown_table(rows)


def _order(item):
    name, _, dead_letters = item[0]
    return "RAC".index(name[0]), int(name[1:]), dead_letters
