"""What an edit of dead letters does to the replays that have still to send them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb

EDITED = "Paused: a dead letter of this replay was edited after its start. To continue, resume it"
_AFFECTED = """
SELECT DISTINCT operation_id FROM operation_records
WHERE state = 'pending' AND message_id IN (SELECT unnest(?::VARCHAR[]))
  AND operation_id IN (SELECT operation_id FROM replay_starts)"""


def revoke_starts(connection: duckdb.DuckDBPyConnection, message_ids: Sequence[str]) -> list[str]:
    """Pause the admitted replays that have still to send one of these dead letters; return their ids.

    An approval covers the content, so `resume` examines such a replay as a new one. Changes nothing without an approval
    policy. Call it in the write transaction of the edit.
    """
    found = [row[0] for row in connection.execute(_AFFECTED, [list(message_ids)]).fetchall()]
    if found:
        connection.execute(  # the rows stay: their records count towards what one person starts within an hour
            "UPDATE replay_starts SET plan_hash = '' WHERE operation_id IN (SELECT unnest(?::VARCHAR[]))",
            [found],
        )
        connection.execute(
            "UPDATE operations SET state = 'paused', message = ? "
            "WHERE state IN ('planned', 'running') AND operation_id IN (SELECT unnest(?::VARCHAR[]))",
            [EDITED, found],
        )
    return found
