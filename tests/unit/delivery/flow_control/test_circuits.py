"""Circuits observe deliveries: which failures open which circuit, what is let through, and what closes it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from producer_core.delivery.flow_control.circuit import Circuit
from producer_core.delivery.flow_control.circuit_breaker import CLOSED, HALF_OPEN, OPEN, CircuitBreaker
from producer_core.delivery.flow_control.circuits import Circuits
from producer_core.errors import CircuitOpen
from producer_core.events import Acknowledged, AttemptFailed
from producer_core.kafka.classify import failure_of
from producer_core.testing import FakeClock

TOPICS = ("orders", "payments")


class World:
    """Circuits with a clock, a connection and messages in flight that the test sets."""

    def __init__(self, **settings):
        self.clock = FakeClock(1_000.0)
        self.unreachable = None
        self.in_flight = set()
        self.notices = []
        self.circuits = Circuits(
            CircuitBreaker(**settings),
            unreachable=lambda: self.unreachable,
            in_flight=lambda: self.in_flight,
            notify=self.notices.append,
            monotonic=self.clock,
        )

    def acknowledge(self, topic="orders", count=1):
        self.circuits.acknowledged(
            [Acknowledged(topic, 0, number, 0.01, 1, 1, number) for number in range(count)]
        )

    def fail(self, code="_MSG_TIMED_OUT", topic="orders", count=1):
        kind = failure_of(code).kind
        for number in range(count):
            self.circuits.attempt_failed(
                AttemptFailed(f"id-{number}", topic, code, kind, f"{code} text", 1, None, False, 0.0)
            )

    def tick(self, seconds=1):
        for _ in range(seconds):
            self.clock.advance(1.0)
            self.circuits.client_statistics({})

    def state(self, topic=None):
        report = self.circuits.report()
        if topic is None:
            return report.cluster.state
        return report.topics[topic].state if topic in report.topics else CLOSED

    def let_through(self, topic="orders", tries=20):
        """Return how many of these messages are let through."""
        passed = 0
        for _ in range(tries):
            try:
                self.circuits.admit(topic)
            except CircuitOpen:
                continue
            passed += 1
        return passed

    def kinds(self):
        return [notice.kind for notice in self.notices]


@pytest.fixture
def world():
    return World()


@pytest.fixture
def half_open(world):
    world.fail(count=20)
    world.tick(5)
    assert world.state() is HALF_OPEN
    return world


# failures


def test_twenty_failures_open_the_circuit_of_the_cluster_once(world):
    world.fail(count=19)
    assert world.state() is CLOSED and not world.circuits.guarded
    world.fail(count=21)

    assert world.state() is OPEN and world.circuits.guarded
    assert world.state("orders") is CLOSED, "one outage opens one circuit"
    (notice,) = world.notices
    assert (notice.kind, notice.severity) == ("circuit_opened", "critical")
    assert notice.text == (
        "The circuit of the cluster is open: 20 of 20 deliveries failed, most recently: _MSG_TIMED_OUT: "
        "_MSG_TIMED_OUT text. New messages are refused."
    )


def test_failures_older_than_the_window_do_not_count(world):
    world.fail(count=19)
    world.tick(11)
    world.fail(count=19)

    assert world.state() is CLOSED


@pytest.mark.parametrize(
    "code",
    ["MSG_SIZE_TOO_LARGE", "INVALID_RECORD", "INVALID_TIMESTAMP", "_INVALID_DIFFERENT_RECORD", "_UNKNOWN_PARTITION",
     "_VALUE_SERIALIZATION", "_PURGE_QUEUE", "malformed", "held"],
)  # fmt: skip
def test_a_refusal_of_single_messages_opens_nothing(world, code):
    world.fail(code, count=500)
    world.tick()

    assert world.state() is CLOSED and world.state("orders") is CLOSED


@pytest.mark.parametrize("code", ["TOPIC_AUTHORIZATION_FAILED", "_UNKNOWN_TOPIC", "NOT_ENOUGH_REPLICAS"])
def test_a_failure_of_one_topic_opens_its_circuit_only(world, code):
    world.fail(code, "orders", 20)

    assert (world.state(), world.state("orders"), world.state("payments")) == (CLOSED, OPEN, CLOSED)
    assert world.let_through("orders") == 0 and world.let_through("payments") == 20
    assert world.notices[0].details == {"topic": "orders", "subject": "orders"}


def test_a_topic_that_times_out_beside_a_topic_that_works_does_not_open_the_cluster(world):
    world.acknowledge("payments", 5)
    world.fail("_MSG_TIMED_OUT", "orders", 100)

    assert (world.state(), world.state("orders")) == (CLOSED, OPEN)


def test_many_topics_that_fail_in_part_open_the_cluster(world):
    for topic in TOPICS:
        world.acknowledge(topic, 3)
    for _ in range(10):
        for topic in TOPICS:
            world.fail("_TRANSPORT", topic)

    assert world.state() is OPEN


def test_failures_of_the_outage_open_no_topic_after_it(half_open):
    half_open.acknowledge(count=5)
    assert half_open.state() is CLOSED
    half_open.fail(count=19)

    assert half_open.state() is CLOSED and half_open.state("orders") is CLOSED


# stalls and the connection


def test_a_stall_opens_the_cluster_within_ten_seconds_at_default_settings(world):
    world.in_flight = {"orders"}
    for _ in range(5):
        world.acknowledge()
        world.tick()
    assert world.state() is CLOSED
    world.tick(6)

    assert world.state() is OPEN and world.state("orders") is CLOSED


def test_slow_messages_with_acknowledgements_in_between_open_nothing(world):
    world.in_flight = {"orders"}
    for _ in range(60):
        world.acknowledge()
        world.tick()

    assert world.state() is CLOSED


def test_an_idle_producer_opens_nothing(world):
    world.tick(3_600)

    assert world.state() is CLOSED


def test_a_topic_that_stalls_beside_a_topic_that_works_opens_alone(world):
    world.in_flight = {"orders", "payments"}
    for _ in range(8):
        world.acknowledge("payments")
        world.tick()

    assert (world.state(), world.state("orders"), world.state("payments")) == (CLOSED, OPEN, CLOSED)


def test_an_outage_of_all_topics_opens_the_cluster_and_no_topic_before(world):
    world.in_flight = {"orders", "payments"}
    world.tick()
    world.acknowledge("orders")
    world.tick(2)
    world.acknowledge("payments")
    world.tick(7)

    assert (world.state(), world.state("orders")) == (OPEN, CLOSED)
    assert len(world.notices) == 1


def test_the_end_of_an_outage_opens_no_topic_that_waited_through_it(world):
    """The first acknowledgements arrive before the next statistics."""
    world.in_flight = {"orders"}
    world.tick(12)
    assert world.state() is HALF_OPEN
    world.acknowledge(count=5)

    assert (world.state(), world.state("orders")) == (CLOSED, CLOSED)
    world.acknowledge("payments")
    world.tick()
    assert world.kinds() == ["circuit_opened", "circuit_closed"]


def test_refused_messages_prove_that_the_brokers_respond(world):
    world.in_flight = {"orders"}
    for _ in range(20):
        world.fail("INVALID_RECORD")
        world.tick()

    assert world.state() is CLOSED


def test_a_lost_connection_opens_the_cluster_also_while_idle(world):
    world.unreachable = "Connection refused"
    world.tick(5)
    assert world.state() is CLOSED
    world.tick()

    assert world.state() is OPEN and "Connection refused" in world.circuits.issues()[0]


def test_the_circuit_stays_open_until_a_broker_is_connected(world):
    world.unreachable = "Connection refused"
    world.tick(600)
    assert world.state() is OPEN
    assert world.let_through() == 0
    world.unreachable = None
    world.tick()

    assert world.state() is HALF_OPEN


def test_a_blocked_poll_thread_opens_nothing(world):
    """A callback blocks the poll thread for a minute, then librdkafka delivers all statistics at once."""
    world.in_flight = {"orders"}
    world.acknowledge()
    world.tick()
    world.clock.advance(60.0)
    for _ in range(60):
        world.circuits.client_statistics({})

    assert world.state() is CLOSED


# probes


def test_an_open_circuit_lets_nothing_through(world):
    world.fail(count=20)
    with pytest.raises(CircuitOpen) as refused:
        world.circuits.admit("orders")

    assert (refused.value.topic, refused.value.retry_after_s) == (None, 5.0)
    assert str(refused.value).startswith("The circuit of the cluster is open: 20 of 20 deliveries failed")
    assert str(refused.value).endswith("Send again in 5.0 s.")
    assert world.circuits.report().refused == {"orders": 1}


def test_a_circuit_becomes_half_open_without_statistics(world):
    world.fail(count=20)
    world.clock.advance(5.0)

    assert world.let_through() == 5 and world.state() is HALF_OPEN


def test_many_threads_at_once_let_at_most_five_probes_through(half_open):
    start = threading.Barrier(16)

    def try_all(_):
        start.wait()
        return half_open.let_through(tries=50)

    with ThreadPoolExecutor(16) as pool:
        assert sum(pool.map(try_all, range(16))) == 5


def test_an_idle_producer_closes_its_circuit_once_a_broker_is_connected(half_open):
    half_open.tick(4)
    assert half_open.state() is HALF_OPEN
    half_open.tick(1)
    assert half_open.state() is CLOSED
    assert half_open.kinds() == ["circuit_opened", "circuit_closed"]


def test_an_idle_producer_without_a_broker_keeps_its_circuit(half_open):
    half_open.unreachable = "Connection refused"
    half_open.tick(60)
    assert half_open.state() is not CLOSED


def test_the_circuit_of_a_topic_without_messages_stays_while_that_of_the_cluster_is_open(world):
    world.acknowledge("payments", count=20)
    world.fail("UNKNOWN_TOPIC_OR_PART", topic="orders", count=20)
    assert world.state("orders") is OPEN and world.state() is CLOSED
    world.unreachable = "Connection refused"
    world.tick(60)
    assert world.state() is OPEN and world.state("orders") is not CLOSED


def test_five_acknowledgements_close_the_circuit(half_open):
    half_open.let_through()
    half_open.acknowledge(count=4)
    assert half_open.state() is HALF_OPEN
    half_open.acknowledge()

    assert half_open.state() is CLOSED and not half_open.circuits.guarded
    assert half_open.kinds() == ["circuit_opened", "circuit_closed"]
    assert half_open.notices[1].details == {"open_s": 5.0}
    assert half_open.let_through(tries=100) == 100


def test_acknowledgements_of_messages_accepted_earlier_close_the_circuit_too(half_open):
    half_open.acknowledge(count=500)

    assert half_open.state() is CLOSED


def test_failed_probes_open_the_circuit_again_without_another_notice(half_open):
    half_open.let_through()
    half_open.fail(count=5)
    assert half_open.state() is OPEN and half_open.kinds() == ["circuit_opened"]
    half_open.tick(5)

    assert half_open.state() is HALF_OPEN and half_open.let_through() == 5
    assert half_open.circuits.report().times_opened == 2


def test_probes_that_the_broker_refuses_for_their_content_close_the_circuit(half_open):
    half_open.let_through()
    half_open.fail("INVALID_RECORD", count=5)

    assert half_open.state() is CLOSED


def test_a_probe_that_was_not_accepted_is_replaced(half_open):
    half_open.let_through()
    half_open.circuits.return_permit("orders")

    assert half_open.let_through() == 1


def test_a_probe_that_never_left_the_client_is_replaced(half_open):
    half_open.let_through()
    half_open.fail("_INVALID_ARG")

    assert half_open.let_through() == 1


def test_the_circuits_of_the_cluster_and_of_a_topic_both_limit_the_probes(world):
    world.fail("TOPIC_AUTHORIZATION_FAILED", "orders", 20)
    world.fail("_TRANSPORT", "payments", 40)
    world.tick(5)
    assert world.state() is HALF_OPEN and world.state("orders") is HALF_OPEN
    assert world.let_through("payments", tries=3) == 3

    assert world.let_through("orders") == 2


def test_a_topic_that_is_idle_again_takes_no_memory(world):
    for number in range(1_000):
        world.acknowledge(f"topic-{number}")
    world.tick(12)

    assert world.circuits._topics == {}


def retry_after(world):
    with pytest.raises(CircuitOpen) as refused:
        world.circuits.admit("orders")
    return refused.value


def test_without_a_connection_the_wait_is_until_the_next_observation():
    """Regression: it was 0 once the wait of the open circuit had passed, so that an obedient caller tried without a pause."""
    world = World(wait_duration_in_open_state_s=3.0, max_in_flight_age_s=2.0)
    world.unreachable = "no broker is connected"
    world.tick(20)

    refused = retry_after(world)

    assert refused.retry_after_s == 1.0
    assert "Send again in 1.0 s." in str(refused)


def test_a_half_open_circuit_without_probes_left_gives_a_wait_above_0():
    world = World(
        wait_duration_in_open_state_s=3.0,
        max_in_flight_age_s=2.0,
        permitted_number_of_calls_in_half_open_state=1,
    )
    world.fail(count=20)
    world.clock.advance(4)
    world.circuits.admit("orders")

    assert retry_after(world).retry_after_s == pytest.approx(2.0)
    world.clock.advance(1.999)
    refused = retry_after(world)
    assert 0 < refused.retry_after_s < 0.01
    assert "Send again in 0.1 s." in str(refused)


def test_a_check_takes_no_probe_of_a_half_open_circuit():
    world = World(wait_duration_in_open_state_s=3.0, permitted_number_of_calls_in_half_open_state=2)
    world.fail(count=20)
    world.clock.advance(4)
    for _ in range(10):
        world.circuits.check("orders")

    assert world.let_through() == 2
    with pytest.raises(CircuitOpen):
        world.circuits.check("orders")
    world.circuits.check("orders", open_only=True)


@pytest.mark.parametrize("state", ["closed", "open"])
def test_a_signal_handler_may_send_to_other_topics_while_its_thread_holds_the_lock(monkeypatch, state):
    """Regression: the lock was not reentrant, so that the producer stood still."""
    world = World()
    if state == "open":
        world.fail("_MSG_TIMED_OUT", count=50)
    original, nested = Circuit.evidence, iter(["other", "third"])

    def interrupted(self, *args, **options):
        if (topic := next(nested, None)) is not None:
            world.let_through(topic, tries=1)
        return original(self, *args, **options)

    monkeypatch.setattr(Circuit, "evidence", interrupted)
    sender = threading.Thread(target=world.let_through, args=("orders", 1), daemon=True)
    sender.start()
    sender.join(10)

    assert not sender.is_alive()
    assert {"orders", "other", "third"} <= set(world.circuits._topics)
