"""The verdict on a dead letter in a store that did not decide it."""

from __future__ import annotations

from producer_core.events import SAFE_VERDICTS, Verdict


def imported_verdict(
    verdict: Verdict, reason: str, *, decided: str, may_be_replayed: bool
) -> tuple[Verdict, str]:
    """Return the verdict and its reason, which never prove that a replay is safe.

    The store that the dead letter comes from may have replayed it since. `decided` names the moment of the given verdict.
    """
    if verdict not in SAFE_VERDICTS or not may_be_replayed:
        return verdict, reason
    return "possibly_persisted", (
        f"The verdict at {decided} was {verdict}: {reason} The message may have been replayed since, so a replay first "
        "looks for its id on the topic."
    )
