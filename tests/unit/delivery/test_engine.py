"""The life cycle of messages with the in-memory transport: each accepted message has exactly one outcome."""

from __future__ import annotations

import threading

import pytest
from confluent_kafka import KafkaError
from hypothesis import given, settings
from hypothesis import strategies as st

from producer_core import MessageStatus, ReliableKafkaProducer, RetryConfig
from producer_core.errors import ProducerClosed, QueueFull
from producer_core.events import Hook
from producer_core.testing import FakeMessage, InMemoryTransport
from tests.support import eventually

QUICK = RetryConfig(max_retries=2, initial_delay_ms=1, max_delay_ms=2, jitter=False)


def make(script=None, *, retry=QUICK, config=None, **options):
    made = []
    transport = InMemoryTransport.factory(made, script=script, **options.pop("memory", {}))
    producer = ReliableKafkaProducer(
        "memory:1", config, retry, store=None, transport=transport, health_check_interval=3600, **options
    )
    return producer, made[0]


def test_sent_means_acknowledged():
    producer, transport = make(lambda delivery: "hold")

    message_id = producer.send_message("orders", {"a": 1})
    eventually(lambda: transport.held == 1)
    before = producer.get_stats()["messages_sent"], producer.get_message_status(message_id)
    transport.release()
    producer.flush(5)

    assert before == (0, MessageStatus.PENDING)
    assert producer.get_stats()["messages_sent"] == 1
    assert producer.get_message_status(message_id) is MessageStatus.SENT
    assert producer.get_message_status(message_id.rpartition("-")[0] + "-77") is None
    assert producer.get_message_status("nonsense") is None
    producer.close()


def test_a_failed_message_is_counted_and_becomes_a_dead_letter():
    producer, _ = make(lambda delivery: KafkaError.POLICY_VIOLATION)

    message_id = producer.send_message("orders", {"a": 1}, key="k")
    producer.flush(5)

    stats = producer.get_stats()
    assert (stats["messages_failed"], stats["messages_dlq"], stats["pending_messages"]) == (1, 1, 0)
    assert producer.get_message_status(message_id) is MessageStatus.DLQ
    (message,) = producer.get_dlq_messages("orders")
    assert (message.id, message.key, message.value, message.status) == (
        message_id,
        "k",
        {"a": 1},
        MessageStatus.DLQ,
    )
    producer.close()


def test_a_retry_sends_the_message_again_and_counts_as_successful():
    tries = []
    producer, transport = make(
        lambda delivery: tries.append(1) or (KafkaError.REQUEST_TIMED_OUT if len(tries) < 3 else None)
    )

    producer.send_message("orders", {"a": 1})
    producer.flush(5)

    assert len(transport.log["orders"]) == 1
    stats = producer.get_stats()
    assert (stats["messages_sent"], stats["messages_retried"], stats["messages_dlq"]) == (1, 2, 0)
    assert stats["retry_stats"]["successful_retries"] == 1
    producer.close()


def test_the_message_id_stays_the_same_through_retries():
    seen = []
    producer, transport = make(
        lambda delivery: (
            seen.append(delivery.record_headers[0])
            or (None if len(seen) > 1 else KafkaError.REQUEST_TIMED_OUT)
        )
    )

    producer.send_message("orders", {})
    producer.flush(5)

    assert seen[0] == seen[1] == transport.log["orders"][0].record_headers[0]
    producer.close()


def test_the_callback_is_called_once_when_the_message_is_settled():
    calls = []
    producer, _ = make(lambda delivery: KafkaError.REQUEST_TIMED_OUT)

    producer.send_message("orders", {}, callback=lambda *seen: calls.append(seen))
    producer.flush(5)

    ((ok, message, error),) = calls
    assert (ok, message.status, message.retry_count) == (False, MessageStatus.DLQ, 2)
    assert "imed out" in str(error)
    producer.close()


def test_an_exception_in_a_callback_does_not_stop_the_thread(caplog):
    producer, _ = make()

    producer.send_message("orders", {}, callback=lambda *seen: 1 / 0)
    producer.flush(5)
    producer.send_message("orders", {})
    producer.flush(5)

    assert producer.get_stats()["messages_sent"] == 2
    assert "delivery callback failed" in caplog.text
    producer.close()


class RaisingHook(Hook):
    """Raises an exception for every event."""

    def acknowledged(self, batch):
        raise ZeroDivisionError

    died = duplicate = attempt_failed = notice = client_statistics = acknowledged


def test_an_exception_in_a_hook_affects_neither_messages_nor_threads(caplog):
    outcomes = Outcomes()
    producer, _ = make(
        lambda delivery: KafkaError.POLICY_VIOLATION if b"bad" in delivery.value else None,
        hooks=(RaisingHook(), outcomes),
    )

    for value in ({"n": 1}, {"n": "bad"}, {"n": 2}):
        producer.send_message("orders", value)
        producer.flush(5)

    assert (len(outcomes.acked), len(outcomes.dead)) == (2, 1)
    assert "hook failed" in caplog.text
    producer.close()


def test_a_flush_waits_until_the_last_acknowledgement_is_counted():
    class SlowHook(Hook):
        def __init__(self):
            self.called, self.proceed = threading.Event(), threading.Event()

        def acknowledged(self, batch):
            self.called.set()
            assert self.proceed.wait(10)

    hook = SlowHook()
    producer, _ = make(hooks=[hook])
    producer.send_message("orders", {"a": 1})
    assert hook.called.wait(10)

    settled = producer._engine.waiting == 0
    early = producer._engine.wait_idle(0.05)
    hook.proceed.set()
    producer.flush(10)

    assert (settled, early) == (True, False)
    assert producer.get_stats()["messages_sent"] == 1
    producer.close()


def test_a_later_rejection_does_not_resolve_an_earlier_ambiguous_attempt():
    codes = iter([KafkaError.REQUEST_TIMED_OUT, KafkaError.POLICY_VIOLATION])
    producer, _ = make(lambda delivery: next(codes))

    message_id = producer.send_message("orders", {})
    producer.flush(5)

    assert producer.dlq.get(message_id).verdict == "possibly_persisted"
    producer.close()


def test_a_slow_rejection_does_not_get_the_verdict_rejected():
    producer, _ = make(lambda delivery: KafkaError.POLICY_VIOLATION, memory={"latency": 0.45})

    message_id = producer.send_message("orders", {})
    producer.flush(5)

    assert producer.dlq.get(message_id).verdict == "possibly_persisted"
    producer.close()


def test_a_full_queue_blocks_up_to_max_block_then_raises_and_drops_nothing():
    producer, transport = make(lambda delivery: "hold", config={"max_block_ms": 50}, memory={"capacity": 2})

    producer.send_message("orders", {})
    producer.send_message("orders", {})
    with pytest.raises(QueueFull, match="No room"):
        producer.send_message("orders", {})
    assert producer.pending_count == 2
    eventually(lambda: transport.held == 2)
    transport.release()
    producer.flush(5)
    assert producer.get_stats()["messages_sent"] == 2
    producer.close()


def test_a_sender_blocked_by_a_full_queue_continues_when_there_is_room():
    producer, transport = make(lambda delivery: "hold", memory={"capacity": 1})
    producer.send_message("orders", {"n": 1})
    eventually(lambda: transport.held == 1)

    waiting = threading.Thread(target=producer.send_message, args=("orders", {"n": 2}))
    waiting.start()
    transport.release()
    waiting.join(5)

    assert not waiting.is_alive()
    eventually(lambda: transport.held == 1)
    transport.release()
    producer.close()


def test_close_turns_unsettled_messages_into_dead_letters():
    producer, _ = make(lambda delivery: "hold")

    ids = [producer.send_message("orders", {"n": n}) for n in range(3)]
    report = producer.close(timeout=0.1)

    assert (report.acknowledged, report.dead, report.lost) == (0, 3, 0)
    assert {producer.dlq.get(message_id).verdict for message_id in ids} == {"possibly_persisted"}
    with pytest.raises(ProducerClosed):
        producer.send_message("orders", {})


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


@pytest.mark.parametrize("transport", [NoMoreStatistics, SentAtTheEnd])
def test_messages_that_close_leaves_are_possibly_persisted_without_proof(transport):
    for dead_letter in closed_in_an_outage(transport):
        assert (dead_letter.verdict, dead_letter.code) == ("possibly_persisted", "_PURGE_QUEUE")


def test_close_keeps_a_message_that_waits_for_its_retry():
    hook = RetryConfig(max_retries=5, initial_delay_ms=60_000, max_delay_ms=60_000)
    producer, _ = make(lambda delivery: KafkaError.REQUEST_TIMED_OUT, retry=hook)

    message_id = producer.send_message("orders", {})
    eventually(lambda: producer.get_message_status(message_id) is MessageStatus.RETRYING)
    report = producer.close(timeout=0.1)

    assert report.dead == 1
    assert producer.dlq.get(message_id).code == "REQUEST_TIMED_OUT"


def test_a_replay_of_two_of_five_dead_letters_keeps_the_other_three():
    down = threading.Event()
    down.set()
    producer, _ = make(lambda delivery: KafkaError.POLICY_VIOLATION if down.is_set() else None)
    ids = [producer.send_message("orders", {"n": n}) for n in range(5)]
    producer.flush(5)

    down.clear()
    replayed = producer.replay_dlq_messages("orders", max_messages=2)

    assert replayed == 2
    assert [message.id for message in producer.get_dlq_messages("orders")] == ids[2:]
    assert producer.get_message_status(ids[0]) is MessageStatus.SENT
    producer.close()


def test_a_replayed_message_that_fails_again_is_kept_once():
    producer, _ = make(lambda delivery: KafkaError.POLICY_VIOLATION)
    message_id = producer.send_message("orders", {"n": 1})
    producer.flush(5)

    assert producer.replay_dlq_messages("orders") == 0
    (message,) = producer.get_dlq_messages("orders")
    assert message.id == message_id
    producer.close()


def test_a_confirmed_duplicate_returns_none_and_a_failed_message_can_be_sent_again():
    fail = [True]
    producer, _ = make(
        lambda delivery: KafkaError.POLICY_VIOLATION if fail[0] else None, enable_deduplication=True
    )

    producer.send_message("orders", {"n": 1})
    producer.flush(5)
    fail[0] = False
    send_more = producer.send_message("orders", {"n": 1})
    producer.flush(5)
    third = producer.send_message("orders", {"n": 1})

    assert send_more is not None
    assert third is None
    assert producer.get_stats()["messages_duplicate"] == 1
    producer.close()


def test_one_dedup_key_on_two_topics_is_two_messages():
    producer, _ = make(lambda delivery: None, enable_deduplication=True)

    sent = [producer.send_message(topic, {}, dedup_key="a 1") for topic in ("orders", "refunds", "orders.a")]
    producer.flush(5)

    assert None not in sent
    assert producer.send_message("orders", {}, dedup_key="a 1") is None
    producer.close()


def test_a_duplicate_of_a_pending_message_is_held_until_the_original_is_settled():
    producer, transport = make(lambda delivery: "hold", enable_deduplication=True)
    reports = []

    producer.send_message("orders", {"n": 1})
    producer.send_message("orders", {"n": 1}, on_delivery=reports.append)
    eventually(lambda: transport.held == 1)
    transport.release()
    producer.flush(5)

    assert len(transport.log["orders"]) == 1
    assert reports[0].duplicate
    producer.close()


def test_send_batch_counts_acknowledged_messages():
    producer, _ = make(lambda delivery: KafkaError.POLICY_VIOLATION if b"bad" in delivery.value else None)

    result = producer.send_batch(
        "orders", [{"n": 1}, {"n": "bad"}, {"n": float("nan")}], key_extractor=lambda row: str(row["n"])
    )

    assert {name: result[name] for name in ("total", "sent", "failed", "duplicate")} == {
        "total": 3,
        "sent": 1,
        "failed": 2,
        "duplicate": 0,
    }
    assert len(result["message_ids"]) == 2
    producer.close()


class Outcomes(Hook):
    """Records the outcomes that hooks receive."""

    def __init__(self):
        self.acked, self.dead = [], []

    def acknowledged(self, batch):
        self.acked.extend(item.seq for item in batch)

    def died(self, dead_letter):
        self.dead.append(int(dead_letter.message_id.rpartition("-")[2]))


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
    producer, transport = make(lambda delivery: next(script, None), hooks=(recorded,))

    sent = [producer.send_message("orders", {"n": n}) for n in range(len(outcomes))]
    if drain:
        transport.release()
    report = producer.close(timeout=0.05 if "hold" in outcomes else 5)

    assert sorted(recorded.acked + recorded.dead) == list(range(len(sent)))
    assert (report.acknowledged, report.dead, report.lost) == (len(recorded.acked), len(recorded.dead), 0)
    assert producer.pending_count == 0


def test_a_callback_that_sends_to_a_full_queue_gets_an_error_at_once():
    """The callback runs on the thread that makes room, so waiting would block all reports until the timeout."""
    errors = []

    def send_more(ok, message, report):
        try:
            for _ in range(3):
                producer.send_message("other", b"x")
        except QueueFull as error:
            errors.append(str(error))

    script = lambda delivery: "hold" if delivery.topic == "other" else None  # noqa: E731
    producer, transport = make(script, memory={"capacity": 2}, config={"max_block_ms": 60_000})
    producer.send_message("orders", b"1", callback=send_more)
    eventually(lambda: errors)

    assert "callback cannot wait" in errors[0]
    transport.release()
    producer.close(timeout=5)


def test_a_client_that_fails_while_it_receives_a_message_does_not_have_it():
    class FailingTransport(InMemoryTransport):
        def produce(self, delivery):
            self._listener.fatal(KafkaError(KafkaError._FATAL), 0)
            super().produce(delivery)

    producer = ReliableKafkaProducer(
        "memory:1", store=None, transport=lambda config, listener: FailingTransport(config, listener)
    )
    reports = []
    producer.send_message("orders", {"n": 1}, on_delivery=reports.append)
    producer.flush(5)

    assert [(report.error, report.attempts) for report in reports] == [(None, 1)]
    assert producer.metrics.snapshot().total("failed_attempts") == 0
    producer.close()
