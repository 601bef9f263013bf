"""Ambiguous messages: the topic is probed first, then `on_ambiguous` decides between a retry and a dead letter."""

from __future__ import annotations

import threading

import pytest
from confluent_kafka import KafkaError

from producer_core import ProducerError, ReliableKafkaProducer, RetryConfig
from producer_core.delivery.connection_state import ConnectionState
from producer_core.delivery.prober import AckCheckpoints, resolve
from producer_core.events import Acknowledged, Hook
from producer_core.kafka.record_lookup import ProbeResult
from producer_core.testing import InMemoryTransport
from tests.support import eventually

QUICK = RetryConfig(max_retries=1, initial_delay_ms=1, max_delay_ms=2, jitter=False)


def make(script, *, retry=QUICK, blind=False, **options):
    made = []
    transport = InMemoryTransport.factory(made, script=script)
    producer = ReliableKafkaProducer(
        "memory:1", None, retry, store=None, transport=transport, health_check_interval=3600, **options
    )
    made[0].blind = blind
    producer.connection.acknowledged()  # there is a connection, so a time-out proves nothing
    return producer, made[0]


def once(code):
    left = [code]
    return lambda delivery: left.pop() if left else None


def test_a_message_that_the_probe_finds_is_not_sent_again():
    reports = []
    producer, transport = make(once("+_MSG_TIMED_OUT"))

    producer.send_message("orders", b"1", "a", on_delivery=reports.append)
    producer.flush(10)

    assert len(transport.log["orders"]) == 1
    assert [(report.error, report.offset) for report in reports] == [(None, 0)]
    stats = producer.get_stats()
    assert (stats["found_landed"], stats["possible_duplicates"], stats["messages_sent"]) == (1, 0, 1)
    producer.close()


def test_a_message_that_the_probe_does_not_find_is_sent_again_as_a_possible_duplicate():
    producer, transport = make(once("_MSG_TIMED_OUT"))

    producer.send_message("orders", b"1", "a")
    producer.flush(10)

    assert len(transport.log["orders"]) == 1
    assert producer.get_stats()["possible_duplicates"] == 1
    producer.close()


def test_a_message_is_probed_before_it_becomes_a_dead_letter():
    producer, _ = make(lambda delivery: "+_MSG_TIMED_OUT", retry=RetryConfig(max_retries=0))

    producer.send_message("orders", b"1", "a")
    producer.flush(10)

    assert producer.get_dlq_messages() == []
    assert producer.get_stats()["messages_sent"] == 1
    producer.close()


def test_a_message_is_not_absent_while_an_old_attempt_may_still_arrive():
    producer, _ = make(lambda delivery: "_MSG_TIMED_OUT", retry=RetryConfig(max_retries=0))

    producer.send_message("orders", b"1", "a")
    producer.flush(10)

    assert [dead_letter.verdict for dead_letter in producer.dlq.dead_letters("orders")] == [
        "possibly_persisted"
    ]
    producer.close()


def send_statistics(transport, *producer_ids):
    """Deliver librdkafka's statistics, which a real client emits once a second."""
    for transport.producer_id in producer_ids:
        transport.emit_statistics()


@pytest.mark.slow
def test_with_dead_letter_a_message_is_sent_again_once_a_later_one_proves_it_absent(monkeypatch):
    monkeypatch.setattr("producer_core.delivery.ambiguity.QUIET_PERIOD_S", 1.0)
    producer, transport = make(once("_MSG_TIMED_OUT"), on_ambiguous="dead_letter")
    send_statistics(transport, 7)

    producer.send_message("orders", b"1", "a")
    eventually(lambda: producer._engine.pending and not transport.outstanding())
    producer.send_message("orders", b"2", "b")
    eventually(lambda: transport.log["orders"])
    eventually(lambda: producer.get_stats()["messages_sent"] == 1)
    send_statistics(transport, 7, 7)
    producer.flush(30)

    assert sorted(one.value for one in transport.log["orders"]) == [b"1", b"2"]
    assert producer.get_stats()["possible_duplicates"] == 0
    producer.close()


@pytest.mark.slow
def test_with_dead_letter_waiting_alone_does_not_make_a_message_absent(monkeypatch):
    """A message was once sent again as absent after 40 s, and its first request arrived after 55 s."""
    monkeypatch.setattr("producer_core.delivery.ambiguity.QUIET_PERIOD_S", 0.2)
    producer, transport = make(once("_MSG_TIMED_OUT"), on_ambiguous="dead_letter")
    send_statistics(transport, 7)

    producer.send_message("orders", b"1", "a")
    producer.flush(30)

    assert transport.log["orders"] == []
    (dead_letter,) = producer.dlq.dead_letters("orders")
    assert dead_letter.verdict == "inconclusive"
    assert "a late request may still arrive" in dead_letter.verdict_reason
    producer.close()


@pytest.mark.slow
def test_with_dead_letter_a_message_that_cannot_be_probed_becomes_a_dead_letter(monkeypatch):
    monkeypatch.setattr("producer_core.delivery.ambiguity.QUIET_PERIOD_S", 0.2)
    producer, transport = make(once("_MSG_TIMED_OUT"), blind=True, on_ambiguous="dead_letter")

    producer.send_message("orders", b"1", "a")
    producer.flush(30)

    assert transport.log["orders"] == []
    assert [dead_letter.verdict for dead_letter in producer.dlq.dead_letters("orders")] == [
        "possibly_persisted"
    ]
    producer.close()


def test_a_flush_waits_until_the_dead_letter_is_stored(monkeypatch):
    """The prober's thread removes the message from `pending` before the hooks receive the dead letter."""
    monkeypatch.setattr("producer_core.delivery.ambiguity.QUIET_PERIOD_S", 0.1)
    called, proceed = threading.Event(), threading.Event()

    class SlowHook(Hook):
        def died(self, dead_letter):
            called.set()
            assert proceed.wait(10)

    producer, _ = make(once("_MSG_TIMED_OUT"), blind=True, on_ambiguous="dead_letter", hooks=[SlowHook()])
    producer.send_message("orders", b"1", "a")
    assert called.wait(10)

    settled = producer._engine.waiting == 0
    early = producer._engine.wait_idle(0.05)
    proceed.set()
    producer.flush(10)

    assert (settled, early) == (True, False)
    assert len(producer.dlq.dead_letters("orders")) == 1
    producer.close()


def test_a_flush_in_a_callback_raises_on_every_thread(monkeypatch):
    monkeypatch.setattr("producer_core.delivery.ambiguity.QUIET_PERIOD_S", 0.1)
    refused = []

    def flush_in_callback(report):
        with pytest.raises(ProducerError, match=r"flush\(\) was called in a delivery callback"):
            producer.flush()
        refused.append(report.error is None)

    producer, _ = make(once("_MSG_TIMED_OUT"), blind=True, on_ambiguous="dead_letter")
    # reported on the prober's thread
    producer.send_message("orders", b"1", "a", on_delivery=flush_in_callback)
    producer.send_message("orders", b"2", "b", on_delivery=flush_in_callback)  # reported on the poll thread

    eventually(lambda: sorted(refused) == [False, True])
    producer.flush(10)
    producer.close()


def test_later_messages_of_a_key_wait_while_an_earlier_one_is_probed():
    producer, transport = make(once("_MSG_TIMED_OUT"))

    for number in range(4):
        producer.send_message("orders", str(number), "a", value_serializer=str.encode)
    eventually(lambda: len(transport.log["orders"]) == 4)
    producer.flush(10)

    assert sorted(int(one.value) for one in transport.log["orders"]) == [0, 1, 2, 3]
    producer.close()


def test_a_close_during_a_probe_turns_the_message_into_a_dead_letter():
    producer, _ = make(lambda delivery: "_MSG_TIMED_OUT", on_ambiguous="dead_letter")
    producer.send_message("orders", b"1", "a")

    report = producer.close(timeout=0.2)

    assert (report.dead, report.acknowledged) == (1, 0)


@pytest.mark.parametrize(
    ("outcome", "policy", "absent", "waited", "expected"),
    [
        ("found", "retry", False, False, "acknowledge"),
        ("found", "dead_letter", False, True, "acknowledge"),
        ("not_found", "retry", False, False, "resend"),
        ("inconclusive", "retry", False, True, "resend"),
        ("not_found", "dead_letter", False, False, "wait"),
        ("not_found", "dead_letter", True, False, "resend"),
        ("not_found", "dead_letter", False, True, "give_up"),
        ("inconclusive", "dead_letter", False, False, "wait"),
        ("inconclusive", "dead_letter", False, True, "give_up"),
    ],
)
def test_the_step_after_a_probe_depends_on_its_outcome_and_the_policy(
    outcome, policy, absent, waited, expected
):
    assert resolve(ProbeResult(outcome, None, None, 0, ""), policy, absent=absent, waited=waited) == expected


def test_the_lower_bound_is_the_offset_acknowledged_before_the_message_was_accepted():
    sequence = [0]
    checkpoints = AckCheckpoints(lambda: sequence[0], every=0.0)
    checkpoints.note([Acknowledged("orders", 0, 10, 0.0, 0, 1, 0)])
    sequence[0] = 5
    checkpoints.note([Acknowledged("orders", 0, 20, 0.0, 0, 1, 4), Acknowledged("other", 3, 7, 0.0, 0, 1, 3)])

    assert checkpoints.floors("orders", 3) == {0: 10}
    assert checkpoints.floors("orders", 5) == {0: 20}
    assert checkpoints.floors("other", 4) == {}


def test_later_messages_of_a_key_wait_while_the_verdict_of_an_earlier_one_is_pending(monkeypatch):
    # Nothing is transmitted during the outage.
    monkeypatch.setattr(ConnectionState, "may_have_sent", lambda *_: False)
    producer, transport = make(once("_MSG_TIMED_OUT"))
    transport.automatic_statistics = False

    producer.send_message("orders", b"1", "a")
    eventually(lambda: producer._engine._failure_handler._awaiting_statistics)
    producer.send_message("orders", b"2", "a")
    producer.send_message("orders", b"other", "b")
    eventually(lambda: transport.log["orders"])
    transport.emit_statistics()
    producer.flush(30)

    assert [one.value for one in transport.log["orders"]] == [b"other", b"1", b"2"]
    assert producer.get_stats()["order_breaks"] == producer.get_stats()["possible_duplicates"] == 0
    producer.close()


@pytest.mark.parametrize(
    ("disconnected", "verdict"),
    [(True, "possibly_persisted"), (False, "rejected")],
    ids=["disconnected", "undisturbed"],
)
def test_a_rejection_is_proof_only_without_a_disconnect_since(disconnected, verdict):
    """A delayed request may arrive after its repetition was rejected.

    librdkafka reports the same connection error once in 30 s, so only its counters show each disconnect.
    """
    producer, transport = make(lambda delivery: "hold")
    transport.automatic_statistics = False
    reports = []

    producer.send_message("orders", b"1", "a", on_delivery=reports.append)
    eventually(lambda: transport.held)
    transport.blind = True
    transport.release(KafkaError.POLICY_VIOLATION)
    eventually(lambda: producer._engine._failure_handler._awaiting_statistics)
    assert not reports
    transport.disconnects += disconnected
    transport.emit_statistics()
    producer.flush(30)
    producer.close()

    assert [report.verdict for report in reports] == [verdict]
