"""The facts that the store of a bundle has about itself, from the manifest, and the mark that makes it read-only."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict, cast

import orjson

from producer_core.store import required_features

if TYPE_CHECKING:
    import duckdb

    from producer_core.diagnostics.incident.manifest import BundleManifest
    from producer_core.store import Store

_SETTING = "incident"
"""The setting of the store with the facts."""


class IncidentFacts(TypedDict):
    """The range of a bundle, the time of its export (seconds since 1970), whether it is masked, and the version."""

    since: float
    until: float
    exported_at: float
    masked: bool
    product_version: str


def make_read_only(connection: duckdb.DuckDBPyConnection, described: BundleManifest) -> None:
    """Mark a store as that of a bundle. From then on no version of this product changes it or replays its dead letters."""
    facts = IncidentFacts(
        since=described.since,
        until=described.until,
        exported_at=described.created_at,
        masked=described.masked,
        product_version=described.product_version,
    )
    connection.execute(
        "INSERT INTO settings (name, value, changed_at) VALUES (?, ?, ?)",
        [_SETTING, orjson.dumps(facts).decode(), described.created_at],
    )
    required_features.require(connection, required_features.INCIDENT, now=described.created_at)


def incident_of(store: Store) -> IncidentFacts | None:
    """Return the facts of a bundle's store; None for any other store."""
    return cast("IncidentFacts", store.get_setting(_SETTING)) if store.is_incident else None
