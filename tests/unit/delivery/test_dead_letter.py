"""The verdict of a dead letter follows from the verdicts of all its attempts."""

from __future__ import annotations

import pytest

from producer_core.delivery.dead_letter import ProducerInfo, make_dead_letter
from producer_core.delivery.delivery import Callbacks, Delivery
from producer_core.events import Attempt
from producer_core.kafka.classify import failure_of

PRODUCER = ProducerInfo("p", "host", "1.0", lambda: "c")
POLICY, TIMED_OUT = "POLICY_VIOLATION", "_MSG_TIMED_OUT"


def dead_letter(*attempts, replayed=False):
    """Return the dead letter of a message whose attempts had these codes and verdicts."""
    callbacks = Callbacks(on_replayed=lambda result: None) if replayed else None
    delivery = Delivery(b"i" * 24, 1, "orders", b"k", b"v")
    delivery.callbacks = callbacks
    delivery.attempts = tuple((Attempt(0.0, code, code), verdict) for code, verdict in attempts)
    return make_dead_letter(delivery, failure_of(attempts[-1][0]), producer=PRODUCER)


@pytest.mark.parametrize(
    ("attempts", "reason"),
    [
        (1, "The broker rejected the message's only transmission (POLICY_VIOLATION)."),
        (3, "The broker rejected each of the message's 3 transmissions (POLICY_VIOLATION)."),
    ],
)
def test_a_rejection_states_the_number_of_transmissions(attempts, reason):
    dead = dead_letter(*[(POLICY, "rejected")] * attempts)

    assert (dead.verdict, dead.verdict_reason) == ("rejected", reason)


@pytest.mark.parametrize(
    ("attempts", "reason"),
    [
        (1, "The broker rejected the replay's only transmission (POLICY_VIOLATION)."),
        (2, "The broker rejected each of the replay's 2 transmissions (POLICY_VIOLATION)."),
    ],
)
def test_a_rejected_replay_does_not_claim_to_be_the_messages_only_transmission(attempts, reason):
    dead = dead_letter(*[(POLICY, "rejected")] * attempts, replayed=True)

    assert (dead.verdict, dead.verdict_reason) == ("rejected", reason)


def test_a_rejected_message_whose_retry_was_not_sent_did_leave_the_client():
    dead = dead_letter((POLICY, "rejected"), (TIMED_OUT, "not_sent"))

    assert dead.code == TIMED_OUT
    assert (dead.verdict, dead.verdict_reason) == (
        "rejected",
        "The broker rejected the message's only transmission (POLICY_VIOLATION).",
    )


def test_a_message_that_never_left_the_client_is_not_sent():
    assert dead_letter((TIMED_OUT, "not_sent")).verdict_reason == (
        "The message never left the client (_MSG_TIMED_OUT)."
    )
    assert dead_letter((TIMED_OUT, "not_sent"), replayed=True).verdict_reason == (
        "The replay did not send the message: it never left the client (_MSG_TIMED_OUT)."
    )


def test_an_ambiguous_attempt_outweighs_a_later_rejection():
    dead = dead_letter((TIMED_OUT, "possibly_persisted"), (POLICY, "rejected"))

    assert dead.verdict == "possibly_persisted"
    assert dead.verdict_reason.startswith("Attempt 1: ")
    again = dead_letter((TIMED_OUT, "possibly_persisted"), replayed=True)
    assert again.verdict_reason.startswith("Replay attempt 1: ")
