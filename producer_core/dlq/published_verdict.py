"""The verdict of a dead letter that was published: a reader of its topic may have replayed it."""

from __future__ import annotations

from dataclasses import replace

from producer_core.events import SAFE_VERDICTS, DeadLetter

PUBLISHED = (
    "The message was published to a dead-letter topic, and a reader of that topic may have replayed it."
)


def without_safe_verdict(dead_letter: DeadLetter) -> DeadLetter:
    """Return the dead letter without a verdict that a resend is safe."""
    if dead_letter.verdict not in SAFE_VERDICTS or not dead_letter.replayable:
        return dead_letter
    reason = f"{PUBLISHED} Previously: {dead_letter.verdict_reason}"
    return replace(dead_letter, verdict="possibly_persisted", verdict_reason=reason)
