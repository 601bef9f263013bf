"""Alerts that many topics have at once, as one line of a list. Each keeps its own silences and acknowledgement."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, TypeVar

from producer_core._internal.join_names import join_names
from producer_core.alerts.alert_state import Alert

_NAMED = 5
"""Topics that the text of a group names."""
_TEXTS: Mapping[str, str] = MappingProxyType(
    {
        "order_break": "On {count:,} topics a message was acknowledged before an earlier one with the same key was "
        "retried. The topics are {names}.",
    }
)
"""The text of a group, by the rule of its alerts. Alerts of other rules are not grouped."""

GROUPED_RULES = frozenset(_TEXTS)

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class AlertGroup:
    """Alerts that a list shows as one. `alert` is the first of them, with the text of the group."""

    alert: Alert
    alert_ids: tuple[str, ...]

    @property
    def several(self) -> bool:
        return len(self.alert_ids) > 1


def alert_groups(
    items: Iterable[Alert], *, apart: Callable[[Alert], Hashable] = lambda item: None
) -> list[AlertGroup]:
    """Return the alerts as a list shows them: firing ones of a rule about many topics as one.

    Alerts that are acknowledged or suppressed are apart from the others, and so are those that differ in `apart`.
    """

    def state(item: Alert) -> Hashable:
        if item.state != "firing":
            return item.alert_id
        return item.acknowledged_by, item.silenced, item.muted_by, item.since is None, apart(item)

    return [_group(found) for found in grouped(items, rule=lambda item: item.rule, apart=state)]


def grouped(
    items: Iterable[Item],
    *,
    rule: Callable[[Item], str],
    apart: Callable[[Item], Hashable] = lambda item: None,
) -> list[list[Item]]:
    """Return lists of the items to show as one, in the order of their first ones. Items of one list agree in `apart`."""
    found: dict[Hashable, list[Item]] = {}
    for number, item in enumerate(items):
        key = (rule(item), apart(item)) if rule(item) in GROUPED_RULES else number
        found.setdefault(key, []).append(item)
    return list(found.values())


def group_text(rule: str, topics: Sequence[str], text: str) -> str:
    """Return the text for the alerts of a rule about these topics; `text`, that of the first one, if it is no group."""
    if len(topics) < 2 or rule not in GROUPED_RULES:
        return text
    return _TEXTS[rule].format(count=len(topics), names=join_names(sorted(topics), most=_NAMED))


def merged_row(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return rows of the table `alerts` that are shown as one: the first, with the text of the group."""
    first = rows[0]
    return {**first, "text": group_text(first["rule"], [row["subject"] for row in rows], first["text"])}


def _group(items: Sequence[Alert]) -> AlertGroup:
    first = items[0]
    text = group_text(first.rule, [item.subject for item in items], first.text)
    return AlertGroup(replace(first, text=text), tuple(item.alert_id for item in items))
