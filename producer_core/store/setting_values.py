"""Validate the settings of a store before they are written."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from producer_core._internal.decision_objective import SETTING as OBJECTIVES
from producer_core._internal.decision_objective import objectives_of
from producer_core._internal.removed_clusters import SETTING as REMOVED_CLUSTERS
from producer_core._internal.removed_clusters import marked_clusters
from producer_core.errors import ConfigError
from producer_core.store.retention import Retention

KEPT = tuple(field.name for field in fields(Retention))
"""Retention of statistics and settled dead letters, in seconds."""

BOUNDS = ("dlq_max_size", "dlq_max_bytes", "dlq_max_age")
"""Limits above which an alert reports too many dead letters; 0 removes a limit."""


TRACE_LINK = "trace_link"
"""The address at which a trace backend shows a trace, with a placeholder for the trace id."""
TRACE_PLACEHOLDER = "{trace_id}"
SCHEMA_REGISTRY = "schema_registry"
"""The address of the schema registry that decodes values for display. It never has credentials."""
_TEXTS = (TRACE_LINK, SCHEMA_REGISTRY)
_KNOWN = (*KEPT, *BOUNDS, *_TEXTS, OBJECTIVES, REMOVED_CLUSTERS)
_ADDRESS = re.compile(r"https?://[^\s\"'<>]+")


def check(changes: Mapping[str, Any]) -> None:
    """Raise ConfigError for an unknown setting or an invalid value. None is the default."""
    for name, value in changes.items():
        if name not in _KNOWN:
            raise ConfigError(
                f"There is no setting {name!r:.60}.",
                fix=f"The settings are {', '.join(_KNOWN)}.",
            )
        if name == TRACE_LINK:
            _check_trace_link(value)
            continue
        if name == SCHEMA_REGISTRY:
            _check_schema_registry(value)
            continue
        if name == OBJECTIVES:
            objectives_of({name: value})
            continue
        if name == REMOVED_CLUSTERS:
            marked_clusters({name: value})
            continue
        if value is None or (value == 0 and value is not False and name in BOUNDS):
            continue
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not 1 <= value < min(2**63, math.inf):
            raise ConfigError(
                f"{name} must be a number of 1 or more, not {value!r:.60}.",
                fix="Use seconds, bytes or a count; None for the default; 0 removes a dlq_max_ limit.",
            )


def _check_trace_link(value: Any) -> None:
    if value is None:
        return
    if not isinstance(value, str) or not _ADDRESS.fullmatch(value) or TRACE_PLACEHOLDER not in value:
        raise ConfigError(
            f"{TRACE_LINK}={value!r:.200} is not an HTTP address with {TRACE_PLACEHOLDER}.",
            fix="For example, https://tempo.example/trace/{trace_id}.",
        )


def _check_schema_registry(value: Any) -> None:
    if value is None:
        return
    if not isinstance(value, str) or not _ADDRESS.fullmatch(value) or "@" in value:
        raise ConfigError(
            f"{SCHEMA_REGISTRY} must be an HTTP address without credentials.",
            fix="For example, http://localhost:8081. Set credentials in the file that PRODUCER_CORE_CONFIG names, "
            "together with schema.registry.url.",
        )
