"""A file of rules: ours, changed and added to, each mistake found with its line and its fix."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from producer_core.alerts import rule_fields
from producer_core.alerts.conditions import (
    METRICS,
    Absence,
    BurnRate,
    Condition,
    InvalidRuleFile,
    ReportedByProducer,
    RouteFailing,
    Threshold,
)
from producer_core.alerts.rule_fields import InvalidValue
from producer_core.alerts.rule_set import RouteSettings, RuleProblem, RuleSet
from producer_core.alerts.rules import RULES, AlertRule

_KINDS: Mapping[str, type[Threshold] | type[BurnRate] | type[Absence]] = {
    "threshold": Threshold,
    "burn_rate": BurnRate,
    "absence": Absence,
}
_NEEDED = {Threshold: ("metric",), BurnRate: (), Absence: ("of", "after")}
_TEXTS = {
    "threshold": "{subject}: {says}; the limit is {threshold:g}",
    "burn_rate": RULES["error_budget_fast"].text,
    "producer": RULES["producer_gone"].text,
    "delivery": RULES["delivery_stalled"].text,
    "traffic": "{subject}: nothing was acknowledged for {after}",
}
_DETAILS = {
    "threshold": ("says", "window", "client"),
    "burn_rate": ("factor", "objective", "long", "short"),
    "producer": ("seen", "client", "pending"),
    "delivery": ("client", "after"),
    "traffic": ("after",),
    "route": ("reason",),
}
_NUMBERS = {
    "threshold": ("value", "threshold"),
    "burn_rate": ("value", "threshold"),
    "producer": ("threshold",),
    "delivery": ("value",),
    "traffic": ("value",),
}
"""What a rule's text may name in braces besides its subject, by its kind: words, and numbers."""


def read(text: str) -> tuple[RuleSet, list[RuleProblem]]:
    """A book and what is wrong in it; what is wrong is left out."""
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"line (\d+)", str(error))
        where = int(line[1]) if line else None
        return RuleSet(), [RuleProblem("the file", "", where, f"This is not TOML: {error}.", "")]
    reader = _RuleParser(text.splitlines())
    settings = {
        name: value for name, value in raw.items() if name not in ("rules", "routes", *reader.unknown(raw))
    }
    book = RuleSet(
        rules=reader.rules(raw.get("rules", {})),
        routes=reader.routes(raw.get("routes", {})),
        **reader.converted("the file", rule_fields.FILE, settings, table=None),
    )
    return book, sorted(reader.problems, key=lambda problem: problem.line or 0)


class _RuleParser:
    """Reads a file's tables and keeps what is wrong with them."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self.problems: list[RuleProblem] = []

    def unknown(self, raw: Mapping[str, Any]) -> set[str]:
        unknown = raw.keys() - rule_fields.FILE.keys() - {"rules", "routes"}
        for name in unknown:
            self._wrong(
                "the file", name, None, rule_fields.no_such(name, [*rule_fields.FILE, "rules", "routes"])
            )
        return unknown

    def rules(self, raw: Any) -> Mapping[str, AlertRule]:
        rules = dict(RULES)
        for name, table in self._tables("rules", raw):
            where = f"rule {name!r}"
            rule = self._changed(name, where, table) if name in RULES else self._added(name, where, table)
            if rule is not None:
                rules[name] = rule
        for name, table in self._tables("rules", raw, quietly=True):
            for other in table.get("inhibits", ()):
                if isinstance(other, str) and other not in rules:
                    self._wrong(
                        f"rule {name!r}",
                        "inhibits",
                        ("rules", name),
                        rule_fields.no_such(other, rules, "rule"),
                    )
        return rules

    def routes(self, raw: Any) -> tuple[RouteSettings, ...]:
        found = []
        for name, table in self._tables("routes", raw):
            where = f"route {name!r}"
            values = self.converted(where, rule_fields.ROUTE, table, table=("routes", name))
            values.pop("kind", None)
            if bool(values.get("url_env")) == bool(values.get("url_file")):
                self._wrong(
                    where,
                    "url_env",
                    ("routes", name),
                    InvalidValue(
                        "One of url_env and url_file must say where the address comes from.",
                        'For example url_env = "PAGER_URL".',
                    ),
                )
            else:
                found.append(RouteSettings(name, **values))
        return tuple(found)

    def converted(
        self,
        where: str,
        known: Mapping[str, rule_fields.Convert],
        given: Mapping[str, Any],
        *,
        table: tuple[str, str] | None,
    ) -> dict[str, Any]:
        """Values by name; each that is wrong becomes a problem and is left out."""
        values = {}
        for name, value in given.items():
            try:
                if name not in known:
                    raise rule_fields.no_such(name, known)
                values[rule_fields.FIELDS.get(name, name)] = known[name](value)
            except InvalidValue as bad:
                self._wrong(where, name, table, bad)
        return values

    def _changed(self, name: str, where: str, table: Mapping[str, Any]) -> AlertRule | None:
        """One of our rules, with what the file says instead."""
        rule, at = RULES[name], ("rules", name)
        if "kind" in table:
            self._wrong(
                where,
                "kind",
                at,
                InvalidValue(
                    "The kind of a built-in rule cannot be changed.",
                    "Give your rule another name, and set enabled = false here.",
                ),
            )
            return None
        own = rule_fields.CONDITIONS.get(_kind(rule.condition), {})
        known = rule_fields.RULE if own else rule_fields.TOLD  # what a producer tells, it words itself
        values = self.converted(where, {**known, **own}, table, table=at)
        inside = {field: values.pop(field) for field in list(values) if field in _fields(rule.condition)}
        condition = self._condition(
            where, at, rule.condition, _without_other_limit(rule.condition, inside) | inside
        )
        return self._worded(where, at, replace(rule, condition=condition, **values))

    def _added(self, name: str, where: str, table: Mapping[str, Any]) -> AlertRule | None:
        at, kind = ("rules", name), str(table.get("kind", ""))
        if kind not in _KINDS:
            near = rule_fields.nearest(name, RULES) if not kind else None
            fix = f" Did you mean the built-in rule {near!r}?" if near else ""
            self._wrong(
                where,
                "kind",
                at,
                InvalidValue("A rule of your own needs a kind.", f"One of {', '.join(_KINDS)}.{fix}"),
            )
            return None
        made = _KINDS[kind]
        values = self.converted(
            where,
            {**rule_fields.RULE, **rule_fields.CONDITIONS[kind], "kind": rule_fields.text},
            table,
            table=at,
        )
        values.pop("kind", None)
        missing = [key for key in _NEEDED[made] if key not in table]
        for key in missing:
            self._wrong(where, key, at, InvalidValue("It is missing.", rule_fields.EXAMPLES.get(key, "")))
        if missing or any(key not in values for key in _NEEDED[made]):
            return None
        inside = {field: values.pop(field) for field in list(values) if field in _names(made)}
        condition = self._condition(where, at, made(**inside), {})
        words = _TEXTS[inside["of"] if kind == "absence" else kind]
        values = {"severity": "warning", "text": words, "advice": "Look at it.", **values}
        return self._worded(where, at, AlertRule(condition=condition, **values))

    def _condition(
        self, where: str, at: tuple[str, str], condition: Condition, inside: Mapping[str, Any]
    ) -> Condition:
        changed = replace(condition, **inside) if inside else condition
        for key, bad in _impossible(changed):
            self._wrong(where, key, at, bad)
        return changed

    def _worded(self, where: str, at: tuple[str, str], rule: AlertRule) -> AlertRule | None:
        """A rule whose text can be filled in."""
        kind = rule.condition.of if isinstance(rule.condition, Absence) else _kind(rule.condition)
        numbers, details = _NUMBERS.get(kind, ()), _DETAILS.get(kind, ())
        try:
            rule.text.format(subject="x", **dict.fromkeys(numbers, 1.0), **dict.fromkeys(details, "x"))
        except (KeyError, IndexError, ValueError) as error:
            if rule.text not in {ours.text for ours in RULES.values()}:
                allowed = ", ".join(f"{{{name}}}" for name in ("subject", *numbers, *details))
                self._wrong(
                    where,
                    "text",
                    at,
                    InvalidValue(f"The text cannot be filled in ({error}).", f"It may name {allowed}."),
                )
                return None
        return rule

    def _tables(
        self, name: str, raw: Any, *, quietly: bool = False
    ) -> Sequence[tuple[str, Mapping[str, Any]]]:
        entries: Sequence[tuple[str, Any]] = list(raw.items()) if isinstance(raw, dict) else [("", raw)]
        good = [(key, table) for key, table in entries if isinstance(table, dict)]
        for key, _ in entries if not quietly else ():
            if key not in dict(good):
                self._wrong(
                    "the file", key or name, None, InvalidValue("A table was expected.", f"[{name}.my_name]")
                )
        return good

    def _wrong(self, where: str, key: str, table: tuple[str, str] | None, bad: InvalidValue) -> None:
        self.problems.append(RuleProblem(where, key, self._line(table, key), bad.text, bad.fix))

    def _line(self, table: tuple[str, str] | None, key: str) -> int | None:
        """The line of a key, else of its table; None where the file is written in a way that hides it."""
        inside, header = table is None, None
        for number, line in enumerate(self._lines, start=1):
            if line.lstrip().startswith("["):
                if header is not None:
                    return header
                parts = [part.strip().strip("\"'") for part in line.strip().strip("[]").split(".", 1)]
                inside = parts == list(table or ())
                header = number if inside else None
            elif inside and re.match(rf"\s*[\"']?{re.escape(key)}[\"']?\s*=", line):
                return number
        return header


def _impossible(condition: Condition) -> list[tuple[str, InvalidValue]]:
    """What is wrong with the values of a condition as they stand together."""
    match condition:
        case Threshold(metric=metric, above=above, below=below, by=by):
            wrong = []
            if (above is None) == (below is None):
                wrong.append(
                    ("above", InvalidValue("A threshold needs above or below, not both.", "above = 0.05"))
                )
            if by not in METRICS[metric].by:
                possible = " or ".join(METRICS[metric].by)
                wrong.append(
                    (
                        "by",
                        InvalidValue(f"{metric} is known by {possible}.", f'by = "{METRICS[metric].by[0]}"'),
                    )
                )
            return wrong
        case BurnRate(pairs=pairs):
            return [
                (
                    "pairs",
                    InvalidValue(
                        "The first window of a pair is the long one.", 'pairs = [["1h", "5m", 14.4]]'
                    ),
                )
                for pair in pairs
                if pair.long <= pair.short
            ]
        case Absence(of="traffic", after=after, lookback=lookback) if lookback <= after:
            return [("lookback", InvalidValue("It must be longer than after.", 'lookback = "1d"'))]
        case _:
            return []


def _without_other_limit(condition: Condition, inside: Mapping[str, Any]) -> dict[str, Any]:
    """Who gives below for a rule with above means instead of it."""
    if isinstance(condition, Threshold) and ("above" in inside) != ("below" in inside):
        return {"above": None, "below": None}
    return {}


def _kind(condition: Condition) -> str:
    match condition:
        case Threshold():
            return "threshold"
        case BurnRate():
            return "burn_rate"
        case Absence():
            return "absence"
        case RouteFailing():
            return "route"
        case InvalidRuleFile() | ReportedByProducer():
            return "told"


def _fields(condition: Condition) -> set[str]:
    return _names(type(condition))


def _names(made: type[Any]) -> set[str]:
    return {item.name for item in fields(made)}
