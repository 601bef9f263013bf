"""The fault schedule, on the embedded broker and on the client side of another cluster."""

from __future__ import annotations

import threading

from confluent_kafka import KafkaError

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
from tests.fixtures.shop import REFUSED


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


def test_the_error_codes_of_the_schedule_exist():
    for fault in set().union(*(shop_schedule().active(second) for second in range(80))):
        if isinstance(fault, RejectFault):
            assert isinstance(getattr(KafkaError, fault.code), int)
