"""The outcome of a replayed record, and its failure as a part of the dead letter."""

from __future__ import annotations

from producer_core.events import Attempt
from producer_core.replay.outcome import AcknowledgedBatch, FailedReplay, RecordOutcome
from tests.fixtures.replays import dead_letter, replay_record
from tests.unit.delivery.test_record_batch import batch_of


def test_a_failed_replay_is_added_to_the_attempts_of_the_dead_letter():
    before = dead_letter(1)
    again = FailedReplay.again(
        dead_letter(1, code="MSG_SIZE_TOO_LARGE", failed_at=6000.0, attempts=(Attempt(6000.0, "X", "large"),))
    )

    after = again.of(before)

    assert [one.failed_at for one in after.attempts] == [1000.0, 6000.0]
    assert (after.code, after.failed_at) == ("MSG_SIZE_TOO_LARGE", 6000.0)
    assert (after.message_id, after.value, after.accepted_at) == (
        before.message_id,
        before.value,
        before.accepted_at,
    )


def test_an_outcome_has_no_position_by_default():
    assert RecordOutcome("m-1", "pending")[2:] == (None, None, None, None, None)


def test_an_acknowledged_batch_has_the_outcome_of_each_record():
    records = [replay_record(number) for number in range(2)]

    assert AcknowledgedBatch(batch_of(records), [0, 1], [7, 8]).outcomes() == [
        RecordOutcome(records[0].message_id, "acknowledged", None, 0, 7),
        RecordOutcome(records[1].message_id, "acknowledged", None, 1, 8),
    ]
