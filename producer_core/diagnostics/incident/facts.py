"""The facts that the store of a bundle has about itself, and the mark that makes it read-only."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TypedDict, cast

from producer_core import __version__
from producer_core.diagnostics.incident.window import IncidentWindow
from producer_core.store import Store, required_features

SETTING = "incident"
"""The setting of the store with the facts."""


class IncidentFacts(TypedDict):
    """The range of a bundle, the time of its export (seconds since 1970), whether it is masked, and the version."""

    since: float
    until: float
    exported_at: float
    masked: bool
    product_version: str


def make_read_only(path: Path, window: IncidentWindow, *, masked: bool, now: float) -> None:
    """Mark a store as that of a bundle. From then on no version of this product changes it or replays its dead letters."""
    facts = IncidentFacts(
        since=window.since, until=window.until, exported_at=now, masked=masked, product_version=__version__
    )
    with (
        contextlib.closing(Store.open(path, create=False)) as store,
        store.borrow(write=True) as connection,
    ):
        store.set_setting(SETTING, facts)
        required_features.require(connection, required_features.INCIDENT, now=now)


def incident_of(store: Store) -> IncidentFacts | None:
    """Return the facts of a bundle's store; None for any other store."""
    return cast("IncidentFacts", store.get_setting(SETTING)) if store.is_incident else None
