"""The parser of a rules file, which changes built-in rules and adds new ones. It reports each mistake with its line."""

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
    CauseReturned,
    Condition,
    InvalidRuleFile,
    ObjectiveBurn,
    ObjectiveMissed,
    PendingApproval,
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
_REQUIRED = {Threshold: ("metric",), BurnRate: (), Absence: ("of", "after")}
_DEFAULT_TEXTS = {
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
    "objective_missed": ("met", "objective", "overdue", "within"),
    "objective_burn": ("met", "objective", "overdue", "within", "due", "first"),
    "cause_returned": ("topic", "group", "code", "since", "who", "resolved", "count"),
    "route": ("reason",),
}
_NUMBERS = {
    "threshold": ("value", "threshold"),
    "burn_rate": ("value", "threshold"),
    "producer": ("threshold",),
    "delivery": ("value",),
    "traffic": ("value",),
    "objective_missed": ("value", "threshold"),
    "objective_burn": ("value", "threshold"),
    "cause_returned": ("value", "threshold"),
}
"""`_DETAILS` and `_NUMBERS`: the placeholders of a rule's text besides {subject}, by kind of rule."""


def read(text: str) -> tuple[RuleSet, list[RuleProblem]]:
    """Return the rule set and the problems of a file. The rule set omits everything that has a problem."""
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"line (\d+)", str(error))
        number = int(line[1]) if line else None
        return RuleSet(), [RuleProblem("the file", "", number, f"This is not valid TOML: {error}.", "")]
    parser = _RuleParser(text.splitlines())
    settings = {
        name: value for name, value in raw.items() if name not in ("rules", "routes", *parser.unknown(raw))
    }
    rule_set = RuleSet(
        rules=parser.rules(raw.get("rules", {})),
        routes=parser.routes(raw.get("routes", {})),
        **parser.converted("the file", rule_fields.FILE, settings, table=None),
    )
    return rule_set, sorted(parser.problems, key=lambda problem: problem.line or 0)


class _RuleParser:
    """Reads the tables of a file and collects their problems."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self.problems: list[RuleProblem] = []

    def unknown(self, raw: Mapping[str, Any]) -> set[str]:
        unknown = raw.keys() - rule_fields.FILE.keys() - {"rules", "routes"}
        for name in unknown:
            self._report(
                "the file", name, None, rule_fields.unknown(name, [*rule_fields.FILE, "rules", "routes"])
            )
        return unknown

    def rules(self, raw: Any) -> Mapping[str, AlertRule]:
        rules = dict(RULES)
        for name, table in self._tables("rules", raw):
            where = f"rule {name!r}"
            rule = self._changed(name, where, table) if name in RULES else self._added(name, where, table)
            if rule is not None:
                rules[name] = rule
        for name, table in self._tables("rules", raw, report=False):
            for other in table.get("inhibits", ()):
                if isinstance(other, str) and other not in rules:
                    self._report(
                        f"rule {name!r}",
                        "inhibits",
                        ("rules", name),
                        rule_fields.unknown(other, rules, "rule"),
                    )
        return rules

    def routes(self, raw: Any) -> tuple[RouteSettings, ...]:
        found = []
        for name, table in self._tables("routes", raw):
            where = f"route {name!r}"
            values = self.converted(where, rule_fields.ROUTE, table, table=("routes", name))
            if bool(values.get("url_env")) == bool(values.get("url_file")):
                self._report(
                    where,
                    "url_env",
                    ("routes", name),
                    InvalidValue(
                        "Exactly one of url_env and url_file must be set.",
                        'For example, url_env = "PAGER_URL".',
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
        """Return the values by field name. Report each invalid one and omit it."""
        values = {}
        for name, value in given.items():
            try:
                if name not in known:
                    raise rule_fields.unknown(name, known)
                values[rule_fields.FIELDS.get(name, name)] = known[name](value)
            except InvalidValue as error:
                self._report(where, name, table, error)
        return values

    def _changed(self, name: str, where: str, table: Mapping[str, Any]) -> AlertRule | None:
        """Return a built-in rule with the changes of the file."""
        rule, at = RULES[name], ("rules", name)
        if "kind" in table:
            self._report(
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
        # The producer provides the text of an alert that it reports.
        known = rule_fields.RULE if own else rule_fields.REPORTED_RULE
        values = self.converted(where, {**known, **own}, table, table=at)
        inside = {field: values.pop(field) for field in list(values) if field in _fields(rule.condition)}
        condition = self._condition(
            where, at, rule.condition, _without_other_limit(rule.condition, inside) | inside
        )
        return self._with_valid_text(where, at, replace(rule, condition=condition, **values))

    def _added(self, name: str, where: str, table: Mapping[str, Any]) -> AlertRule | None:
        at, kind = ("rules", name), str(table.get("kind", ""))
        if kind not in _KINDS:
            near = rule_fields.nearest(name, RULES) if not kind else None
            fix = f" Did you mean the built-in rule {near!r}?" if near else ""
            self._report(
                where,
                "kind",
                at,
                InvalidValue("A new rule requires a kind.", f"Choose from {', '.join(_KINDS)}.{fix}"),
            )
            return None
        condition_type = _KINDS[kind]
        values = self.converted(
            where,
            {**rule_fields.RULE, **rule_fields.CONDITIONS[kind], "kind": rule_fields.text},
            table,
            table=at,
        )
        values.pop("kind", None)
        missing = [key for key in _REQUIRED[condition_type] if key not in table]
        for key in missing:
            self._report(
                where, key, at, InvalidValue("The key is missing.", rule_fields.EXAMPLES.get(key, ""))
            )
        if missing or any(key not in values for key in _REQUIRED[condition_type]):
            return None
        inside = {field: values.pop(field) for field in list(values) if field in _names(condition_type)}
        condition = self._condition(where, at, condition_type(**inside), {})
        text = _DEFAULT_TEXTS[inside["of"] if kind == "absence" else kind]
        values = {"severity": "warning", "text": text, "advice": "Investigate the cause.", **values}
        return self._with_valid_text(where, at, AlertRule(condition=condition, **values))

    def _condition(
        self, where: str, at: tuple[str, str], condition: Condition, inside: Mapping[str, Any]
    ) -> Condition:
        changed = replace(condition, **inside) if inside else condition
        for key, error in _contradictions(changed):
            self._report(where, key, at, error)
        return changed

    def _with_valid_text(self, where: str, at: tuple[str, str], rule: AlertRule) -> AlertRule | None:
        """Return the rule if every placeholder of its text is known. Report the text otherwise."""
        kind = rule.condition.of if isinstance(rule.condition, Absence) else _kind(rule.condition)
        numbers, details = _NUMBERS.get(kind, ()), _DETAILS.get(kind, ())
        try:
            rule.text.format(subject="x", **dict.fromkeys(numbers, 1.0), **dict.fromkeys(details, "x"))
        except (KeyError, IndexError, ValueError) as error:
            if rule.text not in {built_in.text for built_in in RULES.values()}:
                allowed = ", ".join(f"{{{name}}}" for name in ("subject", *numbers, *details))
                self._report(
                    where,
                    "text",
                    at,
                    InvalidValue(f"Invalid placeholder in the text ({error}).", f"Valid: {allowed}."),
                )
                return None
        return rule

    def _tables(self, name: str, raw: Any, *, report: bool = True) -> Sequence[tuple[str, Mapping[str, Any]]]:
        entries: Sequence[tuple[str, Any]] = list(raw.items()) if isinstance(raw, dict) else [("", raw)]
        valid = [(key, table) for key, table in entries if isinstance(table, dict)]
        for key, _ in entries if report else ():
            if key not in dict(valid):
                self._report(
                    "the file", key or name, None, InvalidValue("Expected a table.", f"[{name}.my_name]")
                )
        return valid

    def _report(self, where: str, key: str, table: tuple[str, str] | None, error: InvalidValue) -> None:
        self.problems.append(RuleProblem(where, key, self._line(table, key), error.text, error.fix))

    def _line(self, table: tuple[str, str] | None, key: str) -> int | None:
        """Return the line of a key, otherwise of its table. None for inline tables and other unusual notations."""
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


def _contradictions(condition: Condition) -> list[tuple[str, InvalidValue]]:
    """Return the problems of values that are valid by themselves but not together."""
    match condition:
        case Threshold(metric=metric, above=above, below=below, by=by):
            found = []
            if (above is None) == (below is None):
                found.append(
                    ("above", InvalidValue('Exactly one of "above" and "below" must be set.', "above = 0.05"))
                )
            if by not in METRICS[metric].by:
                possible = " or ".join(METRICS[metric].by)
                found.append(
                    (
                        "by",
                        InvalidValue(
                            f"{metric} can only be grouped by {possible}.", f'by = "{METRICS[metric].by[0]}"'
                        ),
                    )
                )
            return found
        case BurnRate(pairs=pairs):
            return [
                (
                    "pairs",
                    InvalidValue(
                        "The first window of a pair must be the longer one.", 'pairs = [["1h", "5m", 14.4]]'
                    ),
                )
                for pair in pairs
                if pair.long <= pair.short
            ]
        case Absence(of="traffic", after=after, lookback=lookback) if lookback <= after:
            return [
                ("lookback", InvalidValue('It must be longer than the value of "after".', 'lookback = "1d"'))
            ]
        case _:
            return []


def _without_other_limit(condition: Condition, inside: Mapping[str, Any]) -> dict[str, Any]:
    """Drop the limit of the built-in rule when the file sets only the other one."""
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
        case ObjectiveMissed():
            return "objective_missed"
        case ObjectiveBurn():
            return "objective_burn"
        case CauseReturned():
            return "cause_returned"
        case RouteFailing():
            return "route"
        case PendingApproval() | InvalidRuleFile() | ReportedByProducer():
            return "reported"


def _fields(condition: Condition) -> set[str]:
    return _names(type(condition))


def _names(dataclass: type[Any]) -> set[str]:
    return {item.name for item in fields(dataclass)}
