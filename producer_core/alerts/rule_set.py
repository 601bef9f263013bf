"""The book of rules: which hold for a store, and the routes over which people are told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from producer_core.alerts.alert_state import Alert
from producer_core.alerts.rules import RULES, AlertRule

REPEAT = 4 * 3600.0


@dataclass(frozen=True, slots=True)
class RouteSettings:
    """A webhook: where its address comes from, what goes there. Never the address itself."""

    name: str
    url_env: str = ""
    url_file: str = ""
    token_env: str = ""
    token_file: str = ""
    severities: tuple[str, ...] = ("critical", "warning")
    timeout: float = 10.0
    heartbeat: float = 0.0


@dataclass(frozen=True, slots=True)
class RuleProblem:
    """A mistake in a file of rules: where, what, and what would be right."""

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
    """The rules that hold, and the routes. `problem`: why a file was left out of it.

    `repeat`: seconds after which people are told again of what still fires and nobody looks after; 0 is never.
    """

    rules: Mapping[str, AlertRule] = field(default_factory=lambda: RULES)
    routes: tuple[RouteSettings, ...] = ()
    every: float = 5.0
    repeat: float = REPEAT
    labels: Mapping[str, str] = field(default_factory=dict)
    link: str = ""
    path: Path | None = None
    problem: str | None = None

    def dressed(self, item: Alert) -> Alert:
        """What a producer tells, with the severity and the advice that this book gives its rule."""
        rule = self.rules.get(item.rule)
        return item if rule is None else replace(item, severity=rule.severity, advice=rule.advice)
