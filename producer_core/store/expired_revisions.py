"""Delete the content of revisions with that of their dead letters, within the caller's transaction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import duckdb

EMPTY_PATCH = '{"value": [], "set_headers": [], "unset_headers": [], "key": null, "schema_id": null}'
_KNOWN = "(SELECT message_id FROM dead_letters)"
_EMPTY = f"""
UPDATE dead_letter_revisions SET key = NULL, value = NULL, headers = '[]', reason = '', patch = $patch
WHERE replaced_id IN {_KNOWN} AND message_id IN ({{ids}})"""
_DELETE = f"""
DELETE FROM dead_letter_revisions
WHERE (replaced_id IS NULL OR replaced_id NOT IN {_KNOWN}) AND message_id IN ({{ids}})"""
_WITHOUT_DEAD_LETTER = f"SELECT message_id FROM dead_letter_revisions WHERE message_id NOT IN {_KNOWN}"


def forget(connection: duckdb.DuckDBPyConnection, ids: str, parameters: Mapping[str, Any]) -> None:
    """Delete the revisions and drafts of dead letters, selected by a query of their ids.

    A revision that replaces an original keeps its row, without content, while the store has the original: it prevents
    that the original is restored and sent beside its edit.
    """
    connection.execute(_EMPTY.format(ids=ids), {"patch": EMPTY_PATCH, **parameters})
    connection.execute(_DELETE.format(ids=ids), parameters)
    connection.execute(f"DELETE FROM edit_drafts WHERE message_id IN ({ids})", parameters)


def forget_orphans(connection: duckdb.DuckDBPyConnection) -> None:
    """Delete the rows that `forget` kept for originals that the store no longer has."""
    connection.execute(_DELETE.format(ids=_WITHOUT_DEAD_LETTER))
