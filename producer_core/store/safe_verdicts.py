"""Revoke verdicts that a resend is safe, where something else may send the messages or may have sent them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from producer_core.events import SAFE_VERDICTS
from producer_core.store import dead_letter_counts

if TYPE_CHECKING:
    import duckdb

_SAFE_ROWS = f"""
SELECT rowid FROM dead_letters
WHERE state NOT IN ('replayed', 'landed', 'purged') AND replayable AND verdict IN {SAFE_VERDICTS} AND {{condition}}"""


def revoke(
    connection: duckdb.DuckDBPyConnection, reason: str, condition: str = "true", values: Sequence[Any] = ()
) -> int:
    """Change the safe verdicts of the dead letters that meet the condition to `possibly_persisted`; return their number.

    Runs within the caller's transaction. The topic is then probed for these messages before a resend, as after any
    ambiguous failure.
    """
    with dead_letter_counts.in_place(connection, _SAFE_ROWS.format(condition=condition), values):
        changed = connection.execute(
            "UPDATE dead_letters SET verdict = 'possibly_persisted', verdict_reason = concat(?, ' Previously: ', verdict_reason)"
            " WHERE rowid IN (SELECT place FROM changed_places)",
            [reason],
        ).fetchone()
    return int(changed[0]) if changed else 0
