"""The dead letters of a raw bundle can be imported and replayed; those of a masked one cannot."""

from __future__ import annotations

import pytest

from producer_core.diagnostics.incident import IncidentBundle, import_incident
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.errors import StoreError, TransferError
from producer_core.replay.planner import plan
from producer_core.store import Store
from tests.fixtures import incidents
from tests.unit.diagnostics.incident.conftest import WHO

ANY = DeadLetterFilter(state=None)


def test_a_masked_bundle_cannot_be_imported(masked, tmp_path):
    with pytest.raises(TransferError, match="masked"):
        import_incident(Store.open(tmp_path / "other.duckdb"), masked, **WHO)


def test_the_dead_letters_of_a_raw_bundle_are_imported_byte_for_byte(store, raw, tmp_path):
    other = Store.open(tmp_path / "other.duckdb")
    done = import_incident(other, raw, **WHO)
    assert (done.new, done.refused) == (22, 0)
    assert import_incident(other, raw, **WHO).new == 0
    for known in DeadLetters(store).find(ANY, limit=100):
        live, found = (DeadLetters(one).get(known.message_id) for one in (store, other))
        assert (found.value, found.key, found.headers) == (live.value, live.key, live.headers)
        assert found.error_text == live.error_text
    (first,) = DeadLetters(other).find(DeadLetterFilter(state=None, key=incidents.KEY.decode()), limit=5)
    assert incidents.CARD.encode() in DeadLetters(other).get(first.message_id).value


def test_a_dry_run_imports_nothing(raw, tmp_path):
    other = Store.open(tmp_path / "other.duckdb")
    assert import_incident(other, raw, dry_run=True, **WHO).new == 22
    assert DeadLetters(other).count(ANY) == 0


@pytest.mark.parametrize("kind", ["masked", "raw"])
def test_no_replay_can_be_planned_in_the_store_of_a_bundle(kind, request):
    with (
        IncidentBundle(request.getfixturevalue(kind)) as bundle,
        pytest.raises(StoreError, match="read-only"),
    ):
        plan(bundle.store, DeadLetterFilter(), who="ann", origin="cli")
