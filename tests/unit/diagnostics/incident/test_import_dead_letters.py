"""The dead letters of a raw bundle can be imported and replayed; those of a masked one cannot."""

from __future__ import annotations

import zipfile

import pytest

from producer_core.delivery.dead_letter import ReplayRecord
from producer_core.diagnostics.incident import IncidentBundle, import_incident
from producer_core.diagnostics.incident.import_dead_letters import describe
from producer_core.diagnostics.incident.manifest import DEAD_LETTERS
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.dlq.revisions.revision import current, revised_records
from producer_core.errors import StoreError, TransferError
from producer_core.replay.planner import plan
from producer_core.store import Store
from tests.fixtures import incidents
from tests.fixtures.replays import message_id
from tests.unit.diagnostics.incident.conftest import WHO

ANY = DeadLetterFilter(state=None)


def imported(store, path, **options):
    with IncidentBundle(path) as bundle:
        return import_incident(store, bundle, **WHO, **options)


def test_a_masked_bundle_cannot_be_imported(masked, tmp_path):
    other = Store.open(tmp_path / "other.duckdb")
    with pytest.raises(TransferError, match="masked"):
        imported(other, masked)
    with pytest.raises(TransferError, match="masked"), IncidentBundle(masked) as bundle:
        describe(bundle)
    assert DeadLetters(other).count(ANY) == 0


def test_the_dead_letters_of_the_range_are_imported_byte_for_byte(store, raw, window, tmp_path):
    other = Store.open(tmp_path / "other.duckdb")
    done = imported(other, raw)
    assert (done.new, done.refused) == (20, 0)
    assert imported(other, raw).new == 0
    in_range = DeadLetters(store).find(
        DeadLetterFilter(state=None, since=window.since, until=window.until), limit=100
    )
    assert len(in_range) == DeadLetters(other).count(ANY) == 20
    for known in in_range:
        live, found = (DeadLetters(one).get(known.message_id) for one in (store, other))
        assert (found.value, found.key, found.headers) == (live.value, live.key, live.headers)
        assert (found.error_text, found.attempts) == (live.error_text, live.attempts)
    (first,) = DeadLetters(other).find(DeadLetterFilter(state=None, key=incidents.KEY.decode()), limit=5)
    assert incidents.CARD.encode() in DeadLetters(other).get(first.message_id).value


def test_imported_dead_letters_can_be_replayed_after_a_probe_of_the_topic(raw, tmp_path):
    other = Store.open(tmp_path / "other.duckdb")
    imported(other, raw)
    pending = DeadLetters(other).count_by(DeadLetterFilter(), "verdict")
    assert pending.keys() == {"possibly_persisted"}
    planned = plan(other, DeadLetterFilter(), who="ann", origin="cli", can_run="c")
    assert planned.total == pending["possibly_persisted"]


def test_a_replay_of_imported_dead_letters_sends_their_edits(raw, tmp_path):
    other = Store.open(tmp_path / "other.duckdb")
    imported(other, raw)
    edited = message_id(incidents.EDITED)
    with other.borrow() as connection:
        found = current(connection, [edited])
        original = DeadLetters(other).get(edited)
        (record,) = revised_records(
            connection, [ReplayRecord(*(getattr(original, name) for name in ReplayRecord._fields))]
        )
        drafts = connection.execute("SELECT count(*) FROM edit_drafts").fetchall()
    assert found.keys() == {edited} and drafts == [(0,)]
    assert incidents.EDITED_PASSWORD.encode() in record.value
    assert incidents.EDITED_EMAIL in found[edited].reason


def test_a_bundle_describes_what_an_import_reads(raw):
    with IncidentBundle(raw) as bundle:
        found = describe(bundle)
    assert (found.rows, found.exported_by, found.by_topic) == (20, "ann@host", {"payments": 20})


def test_a_dry_run_imports_nothing(raw, tmp_path):
    other = Store.open(tmp_path / "other.duckdb")
    assert imported(other, raw, dry_run=True).new == 20
    assert DeadLetters(other).count(ANY) == 0


def test_a_changed_file_of_dead_letters_is_refused(raw, tmp_path):
    with zipfile.ZipFile(raw) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    data = bytearray(parts[DEAD_LETTERS])
    data[len(data) // 2] ^= 1
    with zipfile.ZipFile(tmp_path / "changed.zip", "w") as archive:
        for name, content in {**parts, DEAD_LETTERS: bytes(data)}.items():
            archive.writestr(name, content)
    other = Store.open(tmp_path / "other.duckdb")
    with pytest.raises(TransferError, match="sha256"):
        imported(other, tmp_path / "changed.zip")
    assert DeadLetters(other).count(ANY) == 0


@pytest.mark.parametrize("kind", ["masked", "raw"])
def test_no_replay_can_be_planned_in_the_store_of_a_bundle(kind, request):
    with (
        IncidentBundle(request.getfixturevalue(kind)) as bundle,
        pytest.raises(StoreError, match="read-only"),
    ):
        plan(bundle.store, DeadLetterFilter(), who="ann", origin="cli")
