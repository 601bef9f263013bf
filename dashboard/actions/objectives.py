"""Change the decision objectives of a store."""

from __future__ import annotations

from producer_core._internal.decision_objective import DecisionObjective
from producer_core.dashboard.actions.result import ORIGIN, ActionResult, attempt
from producer_core.dashboard.wording import decisions as decision_wording
from producer_core.dlq import objectives
from producer_core.store import Store


def set_objective(
    store: Store, topic: str, percent: float, within: float, *, who: str | None = None, origin: str = ORIGIN
) -> ActionResult:
    """Set that this percentage of a topic's dead letters must be decided within these seconds, with one audit entry."""

    def act(name: str) -> ActionResult:
        objective = DecisionObjective(percent, within)
        objectives.set_objective(store, topic, objective, who=name, origin=origin)
        return ActionResult(True, decision_wording.objective_set(topic, objective))

    selection = {"topic": topic, "percent": percent, "within": within}
    return attempt(store, "set", selection, act, who=who, origin=origin)


def remove_objective(
    store: Store, topic: str, *, who: str | None = None, origin: str = ORIGIN
) -> ActionResult:
    """Remove the objective of a topic, with one audit entry."""

    def act(name: str) -> ActionResult:
        objectives.set_objective(store, topic, None, who=name, origin=origin)
        return ActionResult(True, decision_wording.objective_set(topic, None))

    return attempt(store, "set", {"topic": topic}, act, who=who, origin=origin)
