"""The keys of a rules file: the valid values of each, and the message for an invalid one."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from producer_core._internal.join_names import join_names
from producer_core.alerts.conditions import METRICS, WindowPair

Convert = Callable[[Any], Any]

_UNITS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(min|[smhdw])")


class InvalidValue(Exception):
    """An invalid value, with a fix. The parser turns it into a `RuleProblem`."""

    def __init__(self, text: str, fix: str = "") -> None:
        super().__init__(text)
        self.text = text
        self.fix = fix


def nearest(name: str, known: Iterable[str]) -> str | None:
    return next(iter(difflib.get_close_matches(name, list(known), n=1)), None)


def unknown(name: str, known: Iterable[str], kind: str = "key") -> InvalidValue:
    names = sorted(known)
    near = nearest(name, names)
    return InvalidValue(
        f"Unknown {kind} {name!r}.",
        f"Did you mean {near!r}?" if near else f"Valid: {', '.join(names)}.",
    )


def text(value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidValue("Expected a string.", 'Write it in quotes: "…".')
    return value


def flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise InvalidValue("Expected true or false.", "Write true or false, without quotes.")
    return value


def count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InvalidValue(f"{value!r} is not a count.", "Write a whole number, for example 50.")
    return value


def duration(value: Any) -> float:
    """Return the seconds of `"30s"`, `"5m"` or `"1h30m"`."""
    parts = _PART.findall(value) if isinstance(value, str) else []
    if not parts or _PART.sub("", value).strip():
        raise InvalidValue(
            f"{value!r} is not a duration.", 'Write, for example, "30s", "5m", "1h30m" or "3d".'
        )
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def positive_duration(value: Any) -> float:
    seconds = duration(value)
    if seconds <= 0:
        raise InvalidValue(f"{value!r} is not a positive duration.", 'Write, for example, "5m".')
    return seconds


def number(value: Any) -> float:
    """Return a number, or the seconds of a duration."""
    if isinstance(value, str):
        return duration(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        raise InvalidValue(
            f"{value!r} is not a number.", 'Write, for example, 0.05, or "12h" for a duration.'
        )
    return float(value)


def share(value: Any) -> float:
    found = number(value)
    if not 0 < found < 1:
        raise InvalidValue(
            f"{value!r} is not between 0 and 1.", "Write a number between 0 and 1, for example 0.999."
        )
    return found


def one_of(*choices: str) -> Convert:
    def convert(value: Any) -> str:
        if value not in choices:
            near = nearest(value, choices) if isinstance(value, str) else None
            hint = f" Did you mean {near!r}?" if near else ""
            raise InvalidValue(f"{value!r} is not valid.", f"Choose from {', '.join(choices)}.{hint}")
        return str(value)

    return convert


def some_of(*choices: str) -> Convert:
    single = one_of(*choices)

    def convert(value: Any) -> tuple[str, ...]:
        if not isinstance(value, list) or not value:
            raise InvalidValue("Expected a list.", f'Write, for example, ["{choices[0]}"].')
        return tuple(single(item) for item in value)

    return convert


def names(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise InvalidValue("Expected a list of names.", 'Write, for example, ["payments", "orders.*"].')
    return tuple(value)


def labels(value: Any) -> dict[str, str]:
    good = isinstance(value, dict) and all(isinstance(item, str) for item in value.values())
    if not good or not all(re.fullmatch(r"[a-zA-Z_]\w*", name, re.ASCII) for name in value):
        raise InvalidValue("Expected label names with string values.", 'Write labels = { env = "prod" }.')
    if reserved := value.keys() & {"alertname", "severity", "subject", "store"}:
        raise InvalidValue(
            f"{join_names(sorted(reserved))} {'is a label' if len(reserved) == 1 else 'are labels'} of every alert.",
            "Choose another name." if len(reserved) == 1 else "Choose other names.",
        )
    return dict(value)


def pairs(value: Any) -> tuple[WindowPair, ...]:
    example = 'Write pairs = [["1h", "5m", 14.4], ["6h", "30m", 6]]: long window, short window, factor.'
    if not isinstance(value, list) or not value:
        raise InvalidValue("Expected a list of pairs.", example)
    found = []
    for item in value:
        if not isinstance(item, list) or len(item) != 3:
            raise InvalidValue(f"{item!r} is not a pair.", example)
        found.append(WindowPair(positive_duration(item[0]), positive_duration(item[1]), number(item[2])))
    return tuple(found)


def variable(value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", value):
        raise InvalidValue(
            "Expected the name of an environment variable.", 'For example, url_env = "PAGER_URL".'
        )
    return value


def file(value: Any) -> str:
    if not isinstance(value, str) or not value or "://" in value:
        raise InvalidValue("Expected the name of a file.", 'For example, url_file = "pager.url".')
    return value


def secret(value: Any) -> Any:
    """Refuse the value without repeating it in the message."""
    raise InvalidValue(
        "This file must not contain a URL or a secret.",
        'Put it in an environment variable or a separate file, and specify the name: url_env = "PAGER_URL", '
        'url_file = "pager.url", token_env, token_file.',
    )


_SEVERITIES = ("critical", "warning", "info")

FILE: Mapping[str, Convert] = {
    "every": positive_duration,
    "repeat": duration,
    "labels": labels,
    "link": text,
}

RULE: Mapping[str, Convert] = {
    "severity": one_of(*_SEVERITIES),
    "for": duration,
    "keep_firing_for": duration,
    "text": text,
    "advice": text,
    "runbook": text,
    "inhibits": names,
    "subjects": names,
    "enabled": flag,
}

REPORTED_RULE: Mapping[str, Convert] = {
    name: convert for name, convert in RULE.items() if name not in ("text", "subjects")
}

CONDITIONS: Mapping[str, Mapping[str, Convert]] = {
    "threshold": {
        "metric": one_of(*METRICS),
        "above": number,
        "below": number,
        "window": positive_duration,
        "by": one_of("topic", "producer", "store"),
        "min_events": count,
    },
    "burn_rate": {
        "objective": share,
        "pairs": pairs,
        "by": one_of("topic", "producer", "store"),
        "min_events": count,
        "min_failures": count,
    },
    "absence": {
        "of": one_of("producer", "delivery", "traffic"),
        "after": positive_duration,
        "lookback": positive_duration,
    },
    "objective_missed": {"min_overdue": count},
    "objective_burn": {"used": share},
    "cause_returned": {"min_pending": count},
    "route": {"after": positive_duration},
}

ROUTE: Mapping[str, Convert] = {
    "kind": one_of("webhook", "alertmanager"),
    "url_env": variable,
    "url_file": file,
    "token_env": variable,
    "token_file": file,
    "url": secret,
    "token": secret,
    "severities": some_of(*_SEVERITIES),
    "timeout": positive_duration,
    "heartbeat": positive_duration,
}

FIELDS: Mapping[str, str] = {"for": "for_"}
"""The field of a key whose name differs."""

EXAMPLES: Mapping[str, str] = {
    "metric": f'For example, metric = "error_rate". Valid: {", ".join(METRICS)}.',
    "of": 'For example, of = "traffic".',
    "after": 'For example, after = "10m".',
}
