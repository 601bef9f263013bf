"""The features that a version must support to change or replay the dead letters of a store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from producer_core.errors import StoreTooNew

if TYPE_CHECKING:
    import duckdb

TEXT_IDS = "text_ids"
"""Records on the topics have ids as text: a version that does not read these would not find a dead letter that is there."""
APPROVALS = "approvals"
"""An approval policy is adopted: a version without it would start replays that need a second person."""
SUPPORTED = frozenset({"replay_waves", TEXT_IDS, APPROVALS})


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


def refusal(connection: duckdb.DuckDBPyConnection) -> StoreTooNew | None:
    """Return why this version must not change or replay the dead letters of the store; None if it may."""
    required = connection.execute("SELECT feature FROM required_features ORDER BY feature").fetchall()
    missing = [feature for (feature,) in required if feature not in SUPPORTED]
    if not missing:
        return None
    return StoreTooNew(
        f"This store requires {', '.join(missing)}, which this producer_core lacks. It may add statistics and "
        "dead letters, but neither change nor replay them; nothing was changed.",
        fix="Upgrade producer-core on this machine.",
    )
