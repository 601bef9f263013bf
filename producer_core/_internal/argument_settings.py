"""Read the settings that are arguments of a producer's constructor, so that a file or the environment can give them."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, Literal

from producer_core._internal.schema_settings import flag
from producer_core._internal.user_callbacks import short_repr
from producer_core.errors import ConfigError

Kind = Literal["flag", "whole", "number", "text", "list"]

ARGUMENTS: Mapping[str, Kind] = {
    "application": "text",
    "application_version": "text",
    "circuit_breaker": "flag",
    "cluster_id": "text",
    "core": "text",
    "dead_letter_topic": "text",
    "dedup_ttl": "whole",
    "delivery": "text",
    "dlq_max_size": "whole",
    "enable_deduplication": "flag",
    "health_check_interval": "number",
    "journal_dir": "text",
    "journal_level": "text",
    "ledger": "flag",
    "on_ambiguous": "text",
    "on_severe_errors": "text",
    "ordering": "text",
    "run_replays": "flag",
    "shards": "whole",
    "store": "text",
    "telemetry_topic": "text",
    "tracing": "flag",
    "transactional_id": "text",
}
"""The arguments that have a setting of the same name, with the type of their value."""

FIELDS: Mapping[str, Mapping[str, Kind]] = {
    "circuit_breaker": {
        "failure_rate_threshold": "number",
        "minimum_number_of_calls": "whole",
        "sliding_window_size_s": "number",
        "wait_duration_in_open_state_s": "number",
        "permitted_number_of_calls_in_half_open_state": "whole",
        "max_in_flight_age_s": "number",
    },
    "retry_config": {
        "max_retries": "whole",
        "initial_delay_ms": "whole",
        "max_delay_ms": "whole",
        "backoff_multiplier": "number",
        "jitter": "flag",
        "retriable_errors": "list",
    },
    "thresholds": {
        "error_rate_threshold": "number",
        "latency_threshold_ms": "number",
        "dlq_size_threshold": "number",
        "memory_usage_threshold": "number",
    },
}
"""The arguments whose parts have settings: `circuit_breaker.minimum_number_of_calls` is one."""


def is_argument_setting(name: str) -> bool:
    """Return whether the setting, with dots or underscores, is an argument of the producer or a part of one."""
    plain = name.replace(".", "_")
    return plain in ARGUMENTS or _group_of(plain) is not None


def pop_argument_settings(given: dict[str, Any]) -> dict[str, Any]:
    """Remove the settings that are arguments and return them, with values of the argument's type.

    The parts of an argument are returned as a dict under the argument's name. Raise ConfigError for a text that is not a
    value, an unknown part, or two different values of one argument.
    """
    found: dict[str, Any] = {}
    parts: dict[str, dict[str, Any]] = {}
    for name in [name for name in given if is_argument_setting(name)]:
        value, plain = given.pop(name), name.replace(".", "_")
        if value is None and plain != "store":  # as in kafka-python, None means the default
            continue
        if plain in ARGUMENTS:
            _set(found, plain, _converted(plain, ARGUMENTS[plain], value))
            continue
        group = _group_of(plain)
        assert group is not None
        part = plain.removeprefix(f"{group}_")
        _set(parts.setdefault(group, {}), part, _converted(name, _kind(group, part, name), value))
    for group, values in parts.items():
        if found.get(group) is not False:  # circuit_breaker=false takes precedence over its parts
            found[group] = values
    return found


def without_arguments(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of the Kafka client alone, for a command that shares a producer's file."""
    return {name: value for name, value in settings.items() if not is_argument_setting(name)}


def _group_of(plain: str) -> str | None:
    return next((group for group in FIELDS if plain.startswith(f"{group}_")), None)


def _kind(group: str, part: str, name: str) -> Kind:
    if part in FIELDS[group]:
        return FIELDS[group][part]
    close = difflib.get_close_matches(part, FIELDS[group], n=1) or list(FIELDS[group])
    raise ConfigError(
        f"{short_repr(name)} is not a setting of {group}.",
        fix=f"Known: {', '.join(f'{group}.{one}' for one in close)}.",
    )


def _set(found: dict[str, Any], name: str, value: Any) -> None:
    if name in found and found[name] != value:
        raise ConfigError(f"The setting {name!r} is given twice, with different values.", fix="Keep one.")
    found[name] = value


def _converted(name: str, kind: Kind, value: Any) -> Any:
    """Return a text as a value of the argument's type. The constructor checks values that are no text."""
    if not isinstance(value, str):
        return value
    text = value.strip()
    if name == "store":
        return None if text.lower() == "none" else text
    if kind == "text":
        return text
    if kind == "list":
        return [part.strip() for part in text.split(",") if part.strip()]
    return flag(name, text) if kind == "flag" else _number(name, kind, text)


def _number(name: str, kind: Kind, text: str) -> float:
    try:
        return int(text) if kind == "whole" else float(text)
    except ValueError as error:
        what = "a whole number" if kind == "whole" else "a number"
        raise ConfigError(f"{name}={short_repr(text)} is not {what}.", fix=f"Write {what}.") from error
