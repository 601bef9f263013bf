"""The verdict on a dead letter that comes from another store."""

from __future__ import annotations

import pytest

from producer_core.dlq.imported_verdict import imported_verdict
from producer_core.events import SAFE_VERDICTS


@pytest.mark.parametrize("verdict", SAFE_VERDICTS)
def test_a_safe_verdict_becomes_possibly_persisted_with_its_reason(verdict):
    found, reason = imported_verdict(verdict, "It was so.", decided="the export", may_be_replayed=True)

    assert found == "possibly_persisted"
    assert reason.startswith(f"The verdict at the export was {verdict}: It was so. ")


@pytest.mark.parametrize(
    ("verdict", "may_be_replayed"), [("found", True), ("inconclusive", True), ("not_sent", False)]
)
def test_other_verdicts_and_records_that_no_replay_sends_stay_unchanged(verdict, may_be_replayed):
    given = imported_verdict(verdict, "It was so.", decided="publication", may_be_replayed=may_be_replayed)

    assert given == (verdict, "It was so.")
