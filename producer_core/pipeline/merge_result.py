"""Count what a telemetry job has merged, and describe its run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from producer_core._internal.plural import plural


@dataclass(frozen=True)
class MergeResult:
    """Count the batches that a run received and merged, and the records that it set aside.

    `versions` counts the records set aside by schema version; None marks records that are not telemetry, or have a
    shape that no version has.
    """

    batches: int = 0
    merged: int = 0
    set_aside: int = 0
    versions: Mapping[int | None, int] = field(default_factory=dict)

    def __add__(self, other: MergeResult) -> MergeResult:
        versions = {
            version: self.versions.get(version, 0) + other.versions.get(version, 0)
            for version in (*self.versions, *other.versions)
        }
        return MergeResult(
            self.batches + other.batches,
            self.merged + other.merged,
            self.set_aside + other.set_aside,
            versions,
        )


@dataclass(frozen=True)
class RunningJob:
    """Describe a run: what it did, how many records are left on the topics (None: unknown yet), and the current error.

    `note` says what the run leaves out while it continues.
    """

    done: MergeResult
    behind: int | None = None
    trouble: str = ""
    note: str = ""

    @property
    def text(self) -> str:
        """The state in one line."""
        return self.trouble or "; ".join(filter(None, (summary(self.done, self.behind), self.note)))


def summary(done: MergeResult, behind: int | None) -> str:
    """Return the state of a run in one line."""
    text = (
        f"merged {done.merged:,} of {plural(done.batches, 'batch', 'batches')}"
        if done.batches
        else "no batches yet"
    )
    if done.set_aside:
        text += f", {plural(done.set_aside, 'record')} set aside"
    return text + (f"; {plural(behind, 'record')} behind" if behind else "")
