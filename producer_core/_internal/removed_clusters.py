"""The clusters that no longer exist: those that an operator marked, and embedded brokers that have ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from producer_core.errors import ConfigError

SETTING = "removed_clusters"
"""The setting of a store that has the ids of the clusters that an operator marked as removed."""

EMBEDDED = "embedded-"
"""The beginning of the cluster id of an embedded broker, which is a new one at each start."""

EMBEDDED_ENDED_AFTER = 40.0
"""Seconds without a heartbeat of any of its producers after which an embedded broker counts as ended."""

_MAX = 1_000


def marked_clusters(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the ids that an operator marked. Raise ConfigError for a setting that is not valid."""
    given = settings.get(SETTING) or []
    if (
        not isinstance(given, list | tuple)
        or len(given) > _MAX
        or not all(isinstance(one, str) and one for one in given)
    ):
        raise ConfigError(f"{SETTING} must be a list of at most {_MAX:,} cluster ids, not {given!r:.60}.")
    return tuple(given)
