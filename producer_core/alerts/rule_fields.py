"""The keys of a rules file: what each may hold, and what to say when it does not."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from producer_core.alerts.conditions import METRICS, WindowPair

Convert = Callable[[Any], Any]

_UNITS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(min|[smhdw])")


class InvalidValue(Exception):  # it becomes a Problem, never an error that anybody sees
    """A value that does not do, and what would."""

    def __init__(self, text: str, fix: str = "") -> None:
        super().__init__(text)
        self.text = text
        self.fix = fix


def nearest(name: str, known: Iterable[str]) -> str | None:
    return next(iter(difflib.get_close_matches(name, list(known), n=1)), None)


def no_such(name: str, known: Iterable[str], what: str = "key") -> InvalidValue:
    names = sorted(known)
    near = nearest(name, names)
    return InvalidValue(
        f"There is no {what} {name!r}.",
        f"Did you mean {near!r}?" if near else f"There are {', '.join(names)}.",
    )


def text(value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidValue("A text was expected.", 'Write it in quotes: "…".')
    return value


def flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise InvalidValue("true or false was expected.", "Write true or false, without quotes.")
    return value


def count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InvalidValue(f"{value!r} is not a count.", "Write a whole number, for example 50.")
    return value


def duration(value: Any) -> float:
    """`"30s"`, `"5m"`, `"1h30m"`: seconds."""
    parts = _PART.findall(value) if isinstance(value, str) else []
    if not parts or _PART.sub("", value).strip():
        raise InvalidValue(f"{value!r} is not a duration.", 'Write for example "30s", "5m", "1h30m" or "3d".')
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def some_time(value: Any) -> float:
    seconds = duration(value)
    if seconds <= 0:
        raise InvalidValue(f"{value!r} is no time at all.", 'Write for example "5m".')
    return seconds


def figure(value: Any) -> float:
    """A number, or a duration for what is measured in seconds."""
    if isinstance(value, str):
        return duration(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        raise InvalidValue(f"{value!r} is not a number.", 'Write for example 0.05, or "12h" for a time.')
    return float(value)


def share(value: Any) -> float:
    number = figure(value)
    if not 0 < number < 1:
        raise InvalidValue(f"{value!r} is not a share.", "Write a number between 0 and 1, for example 0.999.")
    return number


def one_of(*choices: str) -> Convert:
    def convert(value: Any) -> str:
        if value not in choices:
            near = nearest(value, choices) if isinstance(value, str) else None
            hint = f" Did you mean {near!r}?" if near else ""
            raise InvalidValue(f"{value!r} is not one of them.", f"Choose from {', '.join(choices)}.{hint}")
        return str(value)

    return convert


def some_of(*choices: str) -> Convert:
    single = one_of(*choices)

    def convert(value: Any) -> tuple[str, ...]:
        if not isinstance(value, list) or not value:
            raise InvalidValue("A list was expected.", f'Write for example ["{choices[0]}"].')
        return tuple(single(item) for item in value)

    return convert


def names(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise InvalidValue("A list of names was expected.", 'Write for example ["payments", "orders.*"].')
    return tuple(value)


def labels(value: Any) -> dict[str, str]:
    good = isinstance(value, dict) and all(isinstance(item, str) for item in value.values())
    if not good or not all(re.fullmatch(r"[a-zA-Z_]\w*", name) for name in value):
        raise InvalidValue("Labels are names with texts.", 'Write labels = { env = "prod" }.')
    if taken := value.keys() & {"alertname", "severity", "subject", "store"}:
        raise InvalidValue(f"{', '.join(sorted(taken))} is a label of every alert.", "Choose another name.")
    return dict(value)


def pairs(value: Any) -> tuple[WindowPair, ...]:
    example = 'Write pairs = [["1h", "5m", 14.4], ["6h", "30m", 6]]: long window, short window, factor.'
    if not isinstance(value, list) or not value:
        raise InvalidValue("A list of pairs was expected.", example)
    found = []
    for item in value:
        if not isinstance(item, list) or len(item) != 3:
            raise InvalidValue(f"{item!r} is not a pair.", example)
        found.append(WindowPair(some_time(item[0]), some_time(item[1]), figure(item[2])))
    return tuple(found)


def variable(value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", value):
        raise InvalidValue(
            "The name of an environment variable was expected.", 'For example url_env = "PAGER_URL".'
        )
    return value


def file(value: Any) -> str:
    if not isinstance(value, str) or not value or "://" in value:
        raise InvalidValue("The name of a file was expected.", 'For example url_file = "pager.url".')
    return value


def secret(value: Any) -> Any:
    """Refused without being repeated."""
    raise InvalidValue(
        "An address or a secret must not be in this file.",
        'Put it into an environment variable or a file of its own, and name that: url_env = "PAGER_URL", '
        'url_file = "pager.url", token_env, token_file.',
    )


_SEVERITIES = ("critical", "warning", "info")

FILE: Mapping[str, Convert] = {"every": some_time, "repeat": duration, "labels": labels, "link": text}

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

TOLD: Mapping[str, Convert] = {
    name: convert for name, convert in RULE.items() if name not in ("text", "subjects")
}

CONDITIONS: Mapping[str, Mapping[str, Convert]] = {
    "threshold": {
        "metric": one_of(*METRICS),
        "above": figure,
        "below": figure,
        "window": some_time,
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
        "after": some_time,
        "lookback": some_time,
    },
    "route": {"after": some_time},
}

ROUTE: Mapping[str, Convert] = {
    "kind": one_of("webhook"),
    "url_env": variable,
    "url_file": file,
    "token_env": variable,
    "token_file": file,
    "url": secret,
    "token": secret,
    "severities": some_of(*_SEVERITIES),
    "timeout": some_time,
    "heartbeat": some_time,
}

FIELDS: Mapping[str, str] = {"for": "for_"}
"""Names of keys that are not the names of fields."""

EXAMPLES: Mapping[str, str] = {
    "metric": f'For example metric = "error_rate". There are {", ".join(METRICS)}.',
    "of": 'For example of = "traffic".',
    "after": 'For example after = "10m".',
}
