"""The result of a run under faults, and the table of many results."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from tests.scenarios.faults.invariants import check
from tests.scenarios.faults.ledger import SAFE
from tests.scenarios.result import SavedResult, markdown_table


@dataclass
class Result(SavedResult):
    scenario: str
    medium: str
    guarantee: str
    seed: int
    long: bool
    messages: int = 0
    acknowledged: int = 0
    dead: int = 0
    judged_safe: int = 0
    kills: int = 0
    faults: int = 0
    broker_faults: int = 0
    missing: int = 0
    duplicates: int = 0
    possible_duplicates: int = 0
    order_breaks: int = 0
    falsely_safe: int = 0
    seconds: float = 0.0
    violations: list[str] = field(default_factory=list)
    notes: dict = field(default_factory=dict)
    expected: str = "none"

    @property
    def shows_violation(self):
        return self.missing or self.duplicates


def judge(stage, evidence, seconds, expected):
    """Return the result of the evidence as numbers and sentences."""
    violations = [one for one in check(evidence) if not is_reported_loss(stage, one)]
    if not evidence.accepted:
        stage.problems.append("nothing was accepted")
    log, guarantee = evidence.counts, evidence.guarantee
    missing = (evidence.accepted - set(evidence.dead) - log.keys()) - evidence.excused
    if (
        evidence.removed
        or stage.unclean
        or stage.allowed_losses
        or (evidence.lives and (evidence.lives[-1].closed or {}).get("journaled"))
    ):
        missing = {
            number
            for violation in violations
            if violation.invariant == "I1"
            for number in range(violation.count)
        }
    sums = defaultdict(int)
    for violation in violations:
        sums[violation.invariant] += violation.count
    return Result(
        scenario=stage.name, medium=stage.medium.name, guarantee=guarantee, seed=stage.seed, long=stage.long,
        messages=len(evidence.accepted), acknowledged=len(evidence.acknowledged), dead=len(evidence.dead),
        judged_safe=sum(report.verdict in SAFE for report in evidence.dead.values()),
        kills=stage.kills, faults=stage.faults, broker_faults=stage.broker_faults,
        missing=len(missing), duplicates=sum(count - 1 for count in log.values()),
        possible_duplicates=sum(life.remarks["possible_duplicates"] for life in evidence.lives),
        order_breaks=sums["I3"], falsely_safe=sums["I4"], seconds=round(seconds, 1),
        violations=[f"{one.invariant}: {one.text}" for one in violations] + stage.problems,
        notes={**stage.notes, "proxy": stage.counts()}, expected=expected,
    )  # fmt: skip


def is_reported_loss(stage, violation):
    """Return whether a loss is unavoidable and was reported: after disk damage or an unclean election."""
    loss = violation.invariant in ("I1", "I2", "I6") and "twice" not in violation.text
    if loss and (stage.unclean or violation.count <= stage.allowed_losses):
        stage.notes.setdefault("reported losses", []).append(violation.text)
        return True
    return False


_COLUMNS = ("scenario", "medium", "guarantee", "runs", "messages", "kills", "faults", "missing", "duplicates",
            "order breaks", "falsely safe", "verdict")  # fmt: skip


def table(results):
    """Return a table with one row per scenario, medium and guarantee."""
    groups = defaultdict(list)
    for result in results:
        groups[result.scenario, result.medium, result.guarantee].append(result)
    rows = [_COLUMNS, tuple(["---"] * 3 + ["---:"] * 8 + ["---"])]
    for key in sorted(groups, key=_order):
        runs = groups[key]
        total = [
            sum(getattr(run, name) for run in runs)
            for name in ("messages", "kills", "faults", "broker_faults", "missing", "duplicates", "order_breaks", "falsely_safe")
        ]  # fmt: skip
        messages, kills, faults, broker, missing, duplicates, breaks, false = total
        bad = [run for run in runs if not run.good]
        verdict = (
            runs[0].verdict if not bad else f"{bad[0].verdict} (seeds {', '.join(str(r.seed) for r in bad)})"
        )
        rows.append(
            (
                *key,
                len(runs),
                f"{messages:,}",
                kills,
                faults + broker,
                missing,
                duplicates,
                breaks,
                false,
                verdict,
            )
        )
    return markdown_table(rows)


def _order(key):
    name = key[0]
    digits = "".join(ch for ch in name if ch.isdigit())
    return name[0] != "S", int(digits or 0), key
