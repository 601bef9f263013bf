"""An invalid record is refused."""

from __future__ import annotations

from producer_core.dlq.files import export, import_
from tests.fixtures.replays import add_dead_letters, message_id
from tests.fixtures.transfers import ANY, ME, execute


def test_a_dead_letter_without_its_body_is_not_imported_as_a_tombstone(store, other, tmp_path):
    add_dead_letters(store, 2)
    execute(store, "DELETE FROM dead_letter_bodies WHERE message_id = ?", message_id(0))
    export(store, ANY, tmp_path / "a.parquet", **ME)

    done = import_(other, tmp_path / "a.parquet", **ME)

    assert (done.new, done.refused) == (1, 1)
    assert "value is null instead of 2 bytes" in done.bad[0].reason
