"""The fault schedule, on the embedded broker and on the client side of another cluster."""

import threading

import pytest
from confluent_kafka import KafkaError

from producer_core import ReliableKafkaProducer, RetryConfig
from producer_core.brokers import embedded
from producer_core.simulate.client_faults import ClientFaults
from producer_core.simulate.faults import (
    BrokerExecutor,
    FaultRun,
    FaultSchedule,
    OutageFault,
    RejectFault,
    SlowFault,
    Window,
    shop_schedule,
)
from producer_core.testing import InMemoryTransport
from tests.support import eventually

REFUSED = RejectFault("payments", "POLICY_VIOLATION")


def test_the_schedule_of_make_run_has_a_fault_within_half_a_minute():
    schedule = shop_schedule()
    always = schedule.active(0)

    eventful = [second for second in range(80) if schedule.active(second) != always]

    assert always == {RejectFault("audit-log", "INVALID_RECORD")}
    for opened in range(80):
        assert any((opened + wait) % 80 in eventful for wait in range(35))
    assert 80 - len(eventful) >= 30  # and there is a quiet phase


def test_the_schedule_repeats():
    schedule = shop_schedule()

    assert [schedule.active(second) for second in range(80)] == [
        schedule.active(second + 240) for second in range(80)
    ]


def test_each_kind_of_fault_starts_and_ends():
    faults = set().union(*(shop_schedule("demo.").active(second) for second in range(80)))

    assert {type(fault) for fault in faults} == {RejectFault, SlowFault, OutageFault}
    assert RejectFault("demo.payments", "POLICY_VIOLATION") in faults


class Recorder:
    def __init__(self):
        self.calls = []

    def __getattr__(self, name):
        return lambda *arguments: self.calls.append((name, *arguments))


def test_a_fault_starts_once_and_ends_once():
    broker = Recorder()
    faults = BrokerExecutor(broker)

    for active in ({REFUSED}, {REFUSED}, {REFUSED, SlowFault(0.25)}, {OutageFault()}, set()):
        faults.apply(frozenset(active))

    assert sorted(broker.calls[1:2]) == [("set_latency", 0.25)]
    assert broker.calls[0] == ("reject", "payments", "POLICY_VIOLATION")
    assert sorted(broker.calls[2:4]) == [("accept", "payments"), ("set_latency", 0.0)]
    assert broker.calls[4:] == [("down",), ("up",)]


def test_a_partial_rejection_fails_one_request_per_interval():
    broker = Recorder()
    faults = BrokerExecutor(broker)
    partial = frozenset({RejectFault("user-events", "THROTTLING_QUOTA_EXCEEDED", share=0.1)})

    faults.apply(partial)
    faults.apply(partial)

    assert broker.calls == [("fail_next", "user-events", "THROTTLING_QUOTA_EXCEEDED", 1)] * 2


class Seen:
    def __init__(self):
        self.applied = []
        self.changed = threading.Event()

    def apply(self, faults):
        self.applied.append(faults)
        self.changed.set()


def test_stopping_a_run_ends_faults_that_keep_messages_from_settling():
    seen = Seen()
    run = FaultRun(FaultSchedule((Window(REFUSED), Window(OutageFault())), 10), [seen])

    run.start()
    assert seen.changed.wait(5)
    run.stop()

    assert seen.applied[0] == {REFUSED, OutageFault()}
    assert seen.applied[-1] == {REFUSED}


@pytest.fixture
def client_faults():
    return ClientFaults(InMemoryTransport.factory())


@pytest.fixture
def producer(client_faults):
    with ReliableKafkaProducer(
        "localhost:1", store=None, transport=client_faults.transport, cluster_id="c"
    ) as producer:
        yield producer


def test_a_message_rejected_on_the_client_side_is_not_sent(client_faults, producer):
    client_faults.apply(frozenset({REFUSED}))

    producer.send_message("payments", {"n": 1})
    producer.send_message("orders", {"n": 2})
    producer.flush(5)

    [dead_letter] = producer.get_dlq_messages("payments")
    assert "fault schedule" in dead_letter.last_error
    assert producer.get_stats()["messages_sent"] == 1


def test_an_outage_on_the_client_side_holds_messages_in_order():
    made = []
    client_faults = ClientFaults(InMemoryTransport.factory(made))
    with ReliableKafkaProducer(
        "localhost:1", store=None, transport=client_faults.transport, cluster_id="c"
    ) as producer:
        client_faults.apply(frozenset({OutageFault()}))
        for number in range(100):
            producer.send_message("orders", number)
        assert producer.pending_count == 100

        client_faults.apply(frozenset())
        for number in range(100, 200):
            producer.send_message("orders", number)
        producer.flush(10)

    assert [delivery.value for delivery in made[0].log["orders"]] == [
        str(number).encode() for number in range(200)
    ]


def test_a_held_message_becomes_a_dead_letter_with_verdict_not_sent():
    client_faults = ClientFaults(InMemoryTransport.factory())
    producer = ReliableKafkaProducer(
        "localhost:1", store=None, transport=client_faults.transport, cluster_id="c"
    )
    client_faults.apply(frozenset({OutageFault()}))
    producer.send_message("orders", 1)

    report = producer.close(0.1)

    assert (report.acknowledged, report.dead, report.lost) == (0, 1, 0)


def test_a_real_clients_latencies_include_an_injected_delay():
    client_faults = ClientFaults()
    with embedded.start(topics={"orders": 1, "payments": 1}) as broker:
        with ReliableKafkaProducer(
            broker.bootstrap_servers,
            store=None,
            transport=client_faults.transport,
            cluster_id=broker.cluster_id,
        ) as producer:
            client_faults.apply(frozenset({REFUSED, SlowFault(0.1)}))
            producer.send_message("payments", 1)
            producer.send_message("orders", 1)
            eventually(lambda: producer.get_stats()["messages_sent"] == 1)
            client_faults.apply(frozenset())

            assert producer.replay_dlq_messages("payments") == 1

    assert producer.get_stats()["latency_stats"]["max_ms"] > 95


def test_a_held_message_reported_during_its_release_is_still_retried():
    class Hasty(InMemoryTransport):
        """Reports before `produce` returns, as when the sending thread is descheduled."""

        tries = 0

        def produce(self, delivery):
            self.tries += 1
            self._report([(delivery, KafkaError._TIMED_OUT_QUEUE if self.tries == 1 else None)])

    client_faults = ClientFaults(Hasty)
    retry = RetryConfig(max_retries=2, initial_delay_ms=1, max_delay_ms=2, jitter=False)
    with ReliableKafkaProducer(
        "localhost:1", None, retry, store=None, transport=client_faults.transport, cluster_id="c"
    ) as producer:
        client_faults.apply(frozenset({SlowFault(0.01)}))
        reports = []
        producer.send_message("orders", 1, on_delivery=reports.append)
        eventually(lambda: reports)

    assert [(one.error, one.attempts) for one in reports] == [(None, 2)]
    assert reports[0].latency > 0.005


def test_the_error_codes_of_the_schedule_exist():
    for fault in set().union(*(shop_schedule().active(second) for second in range(80))):
        if isinstance(fault, RejectFault):
            assert isinstance(getattr(KafkaError, fault.code), int)
