"""The clusters that no longer exist: those that an operator marked, and embedded brokers that have ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from producer_core.errors import ConfigError

SETTING = "removed_clusters"
"""The setting of a store that has the clusters that an operator marked as removed, each with the time of the mark."""

EMBEDDED = "embedded-"
"""The beginning of the cluster id of an embedded broker, which is a new one at each start."""

EMBEDDED_ENDED_AFTER = 40.0
"""Seconds without a heartbeat of any of its producers after which an embedded broker counts as ended."""

_MAX = 1_000


def marked_clusters(settings: Mapping[str, Any]) -> dict[str, float]:
    """Return the clusters that an operator marked, each with the time in seconds since 1970.

    Raise ConfigError for a setting that is not valid.
    """
    given = settings.get(SETTING) or {}
    if not isinstance(given, Mapping) or len(given) > _MAX or not all(map(_is_mark, given.items())):
        raise ConfigError(
            f"{SETTING} must be a mapping of at most {_MAX:,} cluster ids to times, not {given!r:.60}."
        )
    return {str(cluster): float(at) for cluster, at in given.items()}


def _is_mark(pair: tuple[object, object]) -> bool:
    cluster, at = pair
    return (
        isinstance(cluster, str)
        and cluster != ""
        and isinstance(at, int | float)
        and not isinstance(at, bool)
    )
