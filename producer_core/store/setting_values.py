"""Check the settings that an operator writes into a store, whichever way they come."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from producer_core.errors import ConfigError
from producer_core.store.retention import Retention

KEPT = tuple(field.name for field in fields(Retention))
"""How long statistics and settled dead letters are kept, in seconds."""

BOUNDS = ("dlq_max_size", "dlq_max_bytes", "dlq_max_age")
"""From where on an alert says that there are too many dead letters; 0 takes a bound away."""


def check(changes: Mapping[str, Any]) -> None:
    """ConfigError for a setting that the store does not have, or a value that it cannot use; None is the default."""
    for name, value in changes.items():
        if name not in (*KEPT, *BOUNDS):
            raise ConfigError(
                f"There is no setting {name!r:.60}.", fix=f"There are {', '.join((*KEPT, *BOUNDS))}."
            )
        if value is None or (value == 0 and value is not False and name in BOUNDS):
            continue
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not 1 <= value < min(2**63, math.inf):
            raise ConfigError(
                f"{name}={value!r:.60} is not a number from 1 on.",
                fix="Give seconds, bytes or a count; None for the default; 0 takes a dlq_max_ bound away.",
            )
