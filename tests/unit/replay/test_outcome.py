"""The outcome of a replayed record, and its failure as a part of the dead letter."""

from __future__ import annotations

from producer_core.events import Attempt
from producer_core.replay.outcome import FailedReplay, RecordOutcome
from tests.fixtures.replays import dead_letter


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
