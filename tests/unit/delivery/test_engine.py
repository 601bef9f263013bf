"""The delivery engine: a flush waits for the last count, and each message has one outcome."""

from __future__ import annotations

import threading

import pytest
from confluent_kafka import KafkaError
from hypothesis import given, settings
from hypothesis import strategies as st

from producer_core.events import Hook
from producer_core.producer.producer import ReliableKafkaProducer
from producer_core.testing import FakeMessage, InMemoryTransport
from tests.fixtures.enqueueing import Outcomes, quick_producer


def test_a_flush_waits_until_the_last_acknowledgement_is_counted():
    class SlowHook(Hook):
        def __init__(self):
            self.called, self.proceed = threading.Event(), threading.Event()

        def acknowledged(self, batch):
            self.called.set()
            assert self.proceed.wait(10)

    hook = SlowHook()
    producer, _ = quick_producer(hooks=[hook])
    producer.send_message("orders", {"a": 1})
    assert hook.called.wait(10)

    settled = producer._engine.waiting == 0
    early = producer._engine.wait_idle(0.05)
    hook.proceed.set()
    producer.flush(10)

    assert (settled, early) == (True, False)
    assert producer.get_stats()["messages_sent"] == 1
    producer.close()


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    outcomes=st.lists(
        st.sampled_from(
            [
                None,
                "hold",
                KafkaError.REQUEST_TIMED_OUT,
                KafkaError.POLICY_VIOLATION,
                KafkaError._MSG_TIMED_OUT,
            ]
        ),
        min_size=1,
        max_size=25,
    ),
    drain=st.booleans(),
)
def test_every_accepted_message_has_exactly_one_outcome(outcomes, drain):
    recorded, script = Outcomes(), iter(outcomes)
    producer, transport = quick_producer(lambda delivery: next(script, None), hooks=(recorded,))

    sent = [producer.send_message("orders", {"n": n}) for n in range(len(outcomes))]
    if drain:
        transport.release()
    report = producer.close(timeout=0.05 if "hold" in outcomes else 5)

    assert sorted(recorded.acked + recorded.dead) == list(range(len(sent)))
    assert (report.acknowledged, report.dead, report.lost) == (len(recorded.acked), len(recorded.dead), 0)
    assert producer.pending_count == 0


class Outage(InMemoryTransport):
    """Keeps messages in the client's queue, as librdkafka does without a connection. `after_purge` emits statistics."""

    down = False

    def _outcomes(self, batch):
        if not self.down:
            return super()._outcomes(batch)
        self._held.extend(batch)
        return ()

    def purge(self):
        held, self._held = self._held, []
        code = KafkaError(KafkaError._PURGE_QUEUE)
        self._listener.reports([(message, code, FakeMessage(0, None, 0.0, message)) for message in held])
        self._later = threading.Thread(target=self.after_purge)
        self._later.start()

    def stop(self, timeout=5.0):
        super().stop(timeout)
        self._later.join(timeout)  # as librdkafka's poll thread

    def after_purge(self):
        self._emit_down(self._requests)

    def _emit_down(self, requests):
        broker = {"state": "CONNECT", "nodeid": 1, "req": {"Produce": requests}}
        self._listener.statistics({"brokers": {"memory": broker}})

    def go_down(self):
        self.down = True
        self._listener.connection_error(KafkaError(KafkaError._TRANSPORT, "Connection refused"))
        self._listener.connection_error(KafkaError(KafkaError._ALL_BROKERS_DOWN))
        self._emit_down(self._requests)


def closed_in_an_outage(transport):
    made = []
    producer = ReliableKafkaProducer("memory:1", store=None, transport=transport.factory(made))
    producer.send_message("orders", {"n": 0})
    producer.flush(10)
    made[0].go_down()
    ids = [producer.send_message("orders", {"n": n}) for n in range(1, 4)]
    producer.close(1)
    return [producer.dlq.get(message_id) for message_id in ids]


@pytest.mark.slow
def test_messages_of_an_outage_that_close_leaves_are_not_sent_if_the_next_statistics_prove_it():
    for dead_letter in closed_in_an_outage(Outage):
        assert (dead_letter.verdict, dead_letter.code) == ("not_sent", "_ALL_BROKERS_DOWN")
        assert dead_letter.error_text == "closed while no broker was connected: Connection refused"


class NoMoreStatistics(Outage):
    def after_purge(self):
        pass


class SentAtTheEnd(Outage):
    def after_purge(self):
        self._emit_down(self._requests + 1)


@pytest.mark.slow
@pytest.mark.parametrize("transport", [NoMoreStatistics, SentAtTheEnd])
def test_messages_that_close_leaves_are_possibly_persisted_without_proof(transport):
    for dead_letter in closed_in_an_outage(transport):
        assert (dead_letter.verdict, dead_letter.code) == ("possibly_persisted", "_PURGE_QUEUE")
