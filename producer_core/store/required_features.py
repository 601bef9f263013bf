"""The features that a version must support to change or replay the dead letters of a store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from producer_core.errors import StoreError, StoreTooNew

if TYPE_CHECKING:
    import duckdb

TEXT_IDS = "text_ids"
"""Records on the topics have ids as text: a version that does not read these would not find a dead letter that is there."""
INCIDENT = "incident_bundle"
"""The store belongs to an incident bundle. No version supports this feature, so none changes or replays its dead letters."""
REVISIONS = "revisions"
"""Dead letters have edits: a version that does not know them would send the original, or restore it beside its edit."""
APPROVALS = "approvals"
"""An approval policy is adopted: a version without it would start replays that need a second person."""
SUPPORTED = frozenset({"replay_waves", TEXT_IDS, REVISIONS, APPROVALS})


def require(connection: duckdb.DuckDBPyConnection, feature: str, *, now: float) -> None:
    """Note that versions without this feature must neither change nor replay the dead letters. It stays required."""
    connection.execute(
        "INSERT INTO required_features SELECT $1, $2 WHERE $1 NOT IN (SELECT feature FROM required_features)",
        [feature, now],
    )


def check(connection: duckdb.DuckDBPyConnection) -> None:
    """Raise StoreTooNew if the store requires a feature that this version lacks. Statistics and new dead letters do not
    need this check: every version that can open the store may add them."""
    if error := refusal(connection):
        raise error


def refusal(connection: duckdb.DuckDBPyConnection) -> StoreError | None:
    """Return why this version must not change or replay the dead letters of the store; None if it may."""
    required = connection.execute("SELECT feature FROM required_features ORDER BY feature").fetchall()
    missing = [feature for (feature,) in required if feature not in SUPPORTED]
    if not missing:
        return None
    if INCIDENT in missing:
        return StoreError(
            "The store of an incident bundle is read-only: its dead letters cannot be changed or replayed."
        )
    return StoreTooNew(
        f"This store requires {', '.join(missing)}, which this producer_core lacks. It may add statistics and "
        "dead letters, but neither change nor replay them; nothing was changed.",
        fix="Upgrade producer-core on this machine.",
    )


def is_incident(connection: duckdb.DuckDBPyConnection) -> bool:
    """Whether the store belongs to an incident bundle."""
    row = connection.execute(
        "SELECT count(*) FROM required_features WHERE feature = ?", [INCIDENT]
    ).fetchone()
    return bool(row and row[0])
