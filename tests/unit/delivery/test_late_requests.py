"""Proofs that a late request of a failed attempt can no longer be appended, and events that prove nothing."""

from __future__ import annotations

import pytest

from producer_core.delivery.delivery import Delivery
from producer_core.delivery.late_requests import LateRequests
from producer_core.events import Acknowledged, Attempt
from producer_core.metrics.ack_batch import Acknowledgements

AMBIGUOUS = (Attempt(1.0, "_MSG_TIMED_OUT", "late"), "possibly_persisted")


class Producer:
    """Passes on the events of one producer in the order of the poll thread."""

    def __init__(self):
        self.sequence = 0
        self.late = LateRequests(lambda: self.sequence)

    def statistics(self, *producer_ids):
        for producer_id in producer_ids:
            self.late.statistics({"eos": {"producer_id": producer_id}})

    def accept(self):
        self.sequence += 1
        return self.sequence - 1

    def fail(self, seq, partition=0, attempts=(AMBIGUOUS,)):
        delivery = Delivery(b"", seq, "orders", None, None)
        delivery.attempts = attempts
        return self.late.failed(delivery, partition)

    def acknowledge(self, seq, partition=0, offset=5):
        row = Acknowledged("orders", partition, offset, 0.0, 0, 1, seq)
        self.late.note(Acknowledgements.of([row]))


@pytest.fixture
def producer():
    started = Producer()
    started.statistics(7)
    return started


def test_a_later_message_on_the_partition_is_proof(producer):
    attempt = producer.fail(producer.accept())
    producer.acknowledge(producer.accept())
    assert not producer.late.impossible(attempt)

    producer.statistics(7, 7)

    assert producer.late.impossible(attempt)


def test_the_proof_stays_valid_after_more_acknowledgements(producer):
    attempt = producer.fail(producer.accept())
    producer.acknowledge(producer.accept())
    producer.statistics(7, 7)

    producer.acknowledge(producer.accept())

    assert producer.late.impossible(attempt)


def test_time_alone_proves_nothing(producer):
    attempt = producer.fail(producer.accept())

    producer.statistics(*[7] * 600)

    assert not producer.late.impossible(attempt)


def test_a_message_accepted_before_the_failure_proves_nothing(producer):
    seq, other = producer.accept(), producer.accept()
    attempt = producer.fail(seq)
    producer.acknowledge(other)
    producer.statistics(7, 7)

    assert not producer.late.impossible(attempt)


def test_another_partition_proves_nothing(producer):
    attempt = producer.fail(producer.accept(), partition=0)
    producer.acknowledge(producer.accept(), partition=1)
    producer.statistics(7, 7)

    assert not producer.late.impossible(attempt)


def test_a_success_without_an_offset_proves_nothing(producer):
    attempt = producer.fail(producer.accept())
    producer.acknowledge(producer.accept(), offset=None)
    producer.statistics(7, 7)

    assert not producer.late.impossible(attempt)


def test_another_producer_id_proves_nothing(producer):
    attempt = producer.fail(producer.accept())
    producer.statistics(8)
    producer.acknowledge(producer.accept())
    producer.statistics(8, 8)

    assert not producer.late.impossible(attempt)


def test_a_producer_id_that_changes_before_the_next_statistics_proves_nothing(producer):
    attempt = producer.fail(producer.accept())
    producer.acknowledge(producer.accept())  # already sent by producer id 8
    producer.statistics(7, 8)  # the first statistics are older than the acknowledgement

    assert not producer.late.impossible(attempt)


def test_a_client_without_idempotence_proves_nothing():
    plain = Producer()
    plain.statistics(-1)

    assert plain.fail(plain.accept()) is None


def test_a_message_accepted_before_the_producer_id_is_known_has_no_proof():
    early = Producer()
    seq = early.accept()
    early.statistics(7)

    assert early.fail(seq) is None


def test_a_second_ambiguous_attempt_has_no_proof(producer):
    assert producer.fail(producer.accept(), attempts=(AMBIGUOUS, AMBIGUOUS)) is None


def test_an_attempt_without_a_partition_has_no_proof(producer):
    assert producer.fail(producer.accept(), partition=None) is None
