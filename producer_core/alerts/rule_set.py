"""The rule set of a store: the rules that apply, and the routes for notifications."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from producer_core.alerts.alert_state import Alert
from producer_core.alerts.rules import RULES, AlertRule

REPEAT = 4 * 3600.0


@dataclass(frozen=True, slots=True)
class RouteSettings:
    """The settings of a route: the source of its URL, and the severities it receives. Never the URL itself."""

    name: str
    kind: str = "webhook"
    url_env: str = ""
    url_file: str = ""
    token_env: str = ""
    token_file: str = ""
    severities: tuple[str, ...] = ("critical", "warning")
    timeout: float = 10.0
    heartbeat: float = 0.0


@dataclass(frozen=True, slots=True)
class RuleProblem:
    """A mistake in a rules file: its place, the problem, and the fix."""

    where: str
    key: str
    line: int | None
    text: str
    fix: str

    def __str__(self) -> str:
        place = f"line {self.line}, " if self.line else ""
        name = f"{self.where}, {self.key!r}" if self.key else self.where
        return f"{place}{name}: {self.text} {self.fix}".strip()


@dataclass(frozen=True, slots=True)
class RuleSet:
    """The rules that apply, and the routes. `problem`: why the rules file is ignored.

    `every`: seconds between two evaluations. `repeat`: seconds after which the notification of an alert that still
    fires, unacknowledged, is repeated; 0 for never.
    """

    rules: Mapping[str, AlertRule] = field(default_factory=lambda: RULES)
    routes: tuple[RouteSettings, ...] = ()
    every: float = 5.0
    repeat: float = REPEAT
    labels: Mapping[str, str] = field(default_factory=dict)
    link: str = ""
    path: Path | None = None
    problem: str | None = None

    def with_overrides(self, item: Alert) -> Alert:
        """Return an alert that a producer reports, with the severity and advice of its rule in this set."""
        rule = self.rules.get(item.rule)
        return item if rule is None else replace(item, severity=rule.severity, advice=rule.advice)
