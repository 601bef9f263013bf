"""Edits that were read from a dead-letter topic, within the caller's transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from producer_core.dlq import states
from producer_core.dlq.lookup import id_in
from producer_core.dlq.revisions.patch import Patch
from producer_core.dlq.revisions.revision import Revision, replaced, write_revisions
from producer_core.dlq.upsert import archive_replaced
from producer_core.events import DeadLetter
from producer_core.messages import REPLACES
from producer_core.store import required_features

if TYPE_CHECKING:
    import duckdb


def note(
    connection: duckdb.DuckDBPyConnection,
    dead_letters: Sequence[DeadLetter],
    *,
    now: float,
    who: str,
    origin: str,
) -> None:
    """Archive the originals of added dead letters that are edits, in whatever order both were read, so that a replay does not
    send an original beside its edit."""
    originals = {one.message_id: found for one in dead_letters if (found := _original(one))}
    if originals:
        required_features.require(connection, required_features.REVISIONS, now=now)
        revisions = [
            Revision(
                one.message_id, 1, now, who, origin, "Read from a dead-letter topic", Patch(), one.key, one.value,
                one.headers, replaced_id=originals[one.message_id],
            )
            for one in dead_letters
            if one.message_id in originals
        ]  # fmt: skip
        write_revisions(connection, revisions)
        archive_replaced(connection, revisions, now=now)
    if late := replaced(connection, [one.message_id for one in dead_letters]):
        states.move(connection, id_in([*late]), "dead", "archived", now=now)


def _original(dead_letter: DeadLetter) -> str | None:
    """Return the id of the message that this one replaces; None without one."""
    value = dict(dead_letter.headers).get(REPLACES)
    found = value.decode(errors="replace") if value else ""
    return found if found not in ("", dead_letter.message_id) else None
