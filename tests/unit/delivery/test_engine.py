"""The delivery engine: a flush waits for the last count, and each message has one outcome."""

from __future__ import annotations

import threading

from confluent_kafka import KafkaError
from hypothesis import given, settings
from hypothesis import strategies as st

from producer_core.events import Hook
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
