"""A producer with a circuit breaker, on a transport in memory: what its calls do while a circuit is open."""

from __future__ import annotations

import asyncio
import pickle
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from confluent_kafka import KafkaError

from producer_core import CircuitBreaker, CircuitOpen, ReliableKafkaProducer, RetryConfig
from producer_core.errors import ConfigError, ProducerClosed, QueueFull
from producer_core.events import AttemptFailed, Notice
from producer_core.testing import InMemoryTransport
from tests.fixtures.operation_counts import counts_of
from tests.support import eventually

FAILURES = 5
FAST = CircuitBreaker(wait_duration_in_open_state_s=0.05, minimum_number_of_calls=FAILURES)
SLOW = CircuitBreaker(wait_duration_in_open_state_s=600, minimum_number_of_calls=FAILURES)


class Cluster:
    """Scripts the outcome of each message. An outage fails all of them."""

    def __init__(self):
        self.down = False
        self.code = KafkaError._MSG_TIMED_OUT

    def __call__(self, delivery):
        return self.code if self.down else None


@pytest.fixture
def cluster():
    return Cluster()


@pytest.fixture
def open_producer(cluster):
    opened = []

    def make(breaker=SLOW, **options):
        made = []
        producer = ReliableKafkaProducer(
            "memory:9092", options.pop("config", None), circuit_breaker=breaker,
            transport=InMemoryTransport.factory(made, **{"script": cluster, **options.pop("transport", {})}),
            **{"store": None, "retry_config": RetryConfig(max_retries=0), **options},
        )  # fmt: skip
        opened.append(producer)
        return producer, made[0]

    yield make
    for producer in opened:
        producer.close(5)


def fail_until_open(producer, cluster, topic="orders"):
    """Send messages that fail until the circuit is open."""
    cluster.down = True
    for number in range(FAILURES):
        producer.send_message(topic, number)
    producer.flush(20)
    assert producer.circuits.times_opened


def is_accepted(producer):
    try:
        return producer.send_message("orders", 1) is not None
    except CircuitOpen:
        return False


def test_a_producer_without_a_circuit_breaker_has_no_step_for_it(open_producer):
    producer, _ = open_producer(breaker=False)

    assert producer.circuits is None
    assert producer._enqueuer is producer._components.engine.enqueuer
    assert "circuit_breaker" not in producer.get_stats()


def test_an_open_circuit_refuses_a_message_and_drops_none(open_producer, cluster):
    producer, _ = open_producer()
    fail_until_open(producer, cluster)

    with pytest.raises(CircuitOpen) as refused:
        producer.send_message("orders", 1)

    assert refused.value.topic is None and 0 < refused.value.retry_after_s <= 600
    report = producer.close()
    assert (report.acknowledged, report.dead) == (0, FAILURES)


def test_a_refusal_takes_few_calls_and_none_of_the_system(open_producer, cluster):
    """It took 41 calls when this test was written, and reached neither the transport nor a lane."""
    producer, transport = open_producer()
    fail_until_open(producer, cluster)
    accepted = transport.outstanding(), len(producer._engine.pending)

    def send():
        with pytest.raises(CircuitOpen):
            producer.send_message("orders", 1)

    send()
    counts = counts_of(send)

    assert counts.calls <= 60 and counts.system.total() == 0
    assert (transport.outstanding(), len(producer._engine.pending)) == accepted


def test_a_closed_circuit_costs_one_call_a_message(open_producer):
    plain, _ = open_producer(breaker=False)
    guarded, _ = open_producer()

    def calls(producer):
        producer.send_message("orders", 0)
        return counts_of(lambda: [producer.send_message("orders", 1) for _ in range(100)]).calls

    assert calls(guarded) <= calls(plain) + 100


def test_the_circuit_closes_after_the_cluster_acknowledges_probes(open_producer, cluster):
    producer, _ = open_producer(FAST)
    fail_until_open(producer, cluster)
    cluster.down = False

    accepted = 0
    while producer.circuits.cluster.state != "closed":
        accepted += is_accepted(producer)
        producer.flush(20)

    assert accepted == 5
    assert producer.send_message("orders", 1)
    assert not any("Circuit" in issue for issue in producer.get_health_status()["issues"])


def test_messages_accepted_before_are_retried_while_the_circuit_is_open(open_producer):
    seen = set()

    def fail_once(delivery):
        new = delivery.id not in seen
        seen.add(delivery.id)
        return "_TRANSPORT" if new else None

    producer, _ = open_producer(
        transport={"script": fail_once}, retry_config=RetryConfig(max_retries=3, initial_delay_ms=1)
    )
    for number in range(FAILURES):
        producer.send_message("orders", number)
    producer.flush(20)

    assert producer.circuits.cluster.state == "open"
    report = producer.close()
    assert (report.acknowledged, report.dead) == (FAILURES, 0)


def test_a_batch_reports_the_refusal_of_each_input(open_producer, cluster):
    producer, _ = open_producer()
    fail_until_open(producer, cluster)

    batch = producer.send_batch("orders", [1, 2, 3])

    assert (batch["failed"], batch["message_ids"]) == (3, [])
    assert all(entry.error.startswith("The circuit of the cluster is open") for entry in batch["results"])
    assert {entry.verdict for entry in batch["results"]} == {"not_sent"}


def test_a_batch_in_groups_reports_the_refusal_of_each_input(open_producer, cluster):
    """As with Redis, whose claims are made in groups."""
    producer, _ = open_producer()
    fail_until_open(producer, cluster)
    producer._in_groups = True

    batch = producer.send_batch("orders", [1, 2, 3])

    assert [entry.status for entry in batch["results"]] == ["failed"] * 3


def test_half_open_lets_a_part_of_a_group_through(open_producer, cluster):
    producer, transport = open_producer(FAST)
    fail_until_open(producer, cluster)
    cluster.code = "hold"
    eventually(lambda: is_accepted(producer))
    producer._in_groups = True

    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(producer.send_batch, "orders", list(range(20)))
        try:
            eventually(lambda: transport.held == 5, timeout=20)
        finally:
            eventually(lambda: transport.release() or sending.done())

    assert (sending.result()["sent"], sending.result()["failed"]) == (4, 16)


def test_send_async_raises_the_refusal(open_producer, cluster):
    producer, _ = open_producer()
    fail_until_open(producer, cluster)

    with pytest.raises(CircuitOpen):
        asyncio.run(producer.send_async("orders", 1))


def test_with_a_journal_messages_are_accepted_while_the_circuit_is_open(open_producer, cluster, tmp_path):
    producer, transport = open_producer(journal_dir=tmp_path / "journal", transport={"capacity": 50})
    fail_until_open(producer, cluster)
    cluster.code = "hold"

    ids = [producer.send_message("orders", number) for number in range(200)]

    assert None not in ids and producer.circuits.cluster.state == "open"
    cluster.down = False
    eventually(lambda: transport.release() or producer.get_stats()["messages_sent"] == 200)
    report = producer.close()
    assert (report.acknowledged, report.dead, report.journaled, report.lost) == (
        200,
        0,
        FAILURES,
        0,
    )  # dead letters without a store stay in the journal


def test_a_replay_sends_nothing_while_the_circuit_is_open(open_producer, cluster):
    producer, _ = open_producer()
    fail_until_open(producer, cluster)

    assert producer.replay_dlq_messages("orders", timeout=600, inconclusive="send") == 0
    assert len(producer.get_dlq_messages()) == FAILURES


def test_a_replay_is_a_probe_of_a_half_open_circuit(open_producer, cluster):
    producer, _ = open_producer(FAST)
    fail_until_open(producer, cluster)
    cluster.down = False

    replayed = eventually(lambda: producer.replay_dlq_messages("orders", inconclusive="send"))

    assert replayed == FAILURES and producer.get_dlq_messages() == []
    assert producer.circuits.cluster.state == "closed"


def test_a_message_without_room_gives_its_probe_back(open_producer, cluster):
    producer, _ = open_producer(FAST, config={"max_block_ms": 0}, transport={"capacity": 1})
    cluster.down = True
    for _ in range(FAILURES):
        producer.send_message("orders", 0)
        producer.flush(20)
    cluster.code = "hold"
    eventually(lambda: is_accepted(producer))

    for _ in range(20):  # more than the probes that a half-open circuit lets through
        with pytest.raises(QueueFull):
            producer.send_message("orders", 1)
    producer._in_groups = True
    batch = producer.send_batch("orders", list(range(20)))
    assert not [entry.error for entry in batch["results"] if "circuit" in entry.error]


def test_statistics_health_and_log_name_the_open_circuit(open_producer, cluster):
    producer, _ = open_producer()
    fail_until_open(producer, cluster)
    with pytest.raises(CircuitOpen):
        producer.send_message("orders", 1)

    stats = producer.get_stats()["circuit_breaker"]
    health = producer.get_health_status()

    assert (stats["state"], stats["times_opened"], stats["messages_refused"]) == ("open", 1, 1)
    assert stats["reason"].startswith("5 of 5 deliveries failed, most recently: _MSG_TIMED_OUT")
    assert health["status"] == "unhealthy"
    assert any(issue.startswith("Circuit open for the cluster: 5 of 5") for issue in health["issues"])


def test_an_error_survives_a_process_boundary():
    error = CircuitOpen(topic="orders", reason="why", retry_after_s=2.0)
    copy = pickle.loads(pickle.dumps(error))

    assert (copy.topic, copy.reason, copy.retry_after_s, str(copy)) == ("orders", "why", 2.0, str(error))


@pytest.mark.parametrize("given", ["yes", 1, CircuitBreaker, None, {}])
def test_anything_but_a_circuit_breaker_is_refused(given):
    with pytest.raises(ConfigError, match="circuit_breaker="):
        ReliableKafkaProducer("memory:9092", store=None, circuit_breaker=given)


def test_rare_statistics_are_refused_because_they_hide_an_outage():
    with pytest.raises(ConfigError, match="statistics_interval_ms"):
        ReliableKafkaProducer(
            "memory:9092", {"statistics_interval_ms": 0}, store=None, circuit_breaker=True,
            transport=InMemoryTransport.factory(),
        )  # fmt: skip


# severe errors


def test_a_severe_error_closes_the_producer_and_keeps_what_was_accepted(open_producer, cluster):
    producer, transport = open_producer(False, on_severe_errors="stop")
    cluster.down, cluster.code = True, "hold"
    for number in range(10):
        producer.send_message("orders", number)
    eventually(lambda: transport.held == 10)
    threading.Timer(0.2, lambda: transport.release()).start()

    producer._components._notice(Notice("fenced", "critical", "Another process took over.", 0.0))

    eventually(lambda: producer.closed)
    with pytest.raises(ProducerClosed, match="closed itself after a severe error: Another process took over"):
        producer.send_message("orders", 11)
    report = producer.close()
    assert (report.acknowledged, report.dead, report.lost) == (10, 0, 0)


def test_refused_credentials_of_the_client_close_the_producer(open_producer, cluster):
    producer, _ = open_producer(
        False, on_severe_errors="stop",
        transport={"refuse": lambda delivery: KafkaError.CLUSTER_AUTHORIZATION_FAILED},
    )  # fmt: skip
    producer.send_message("orders", 1)

    eventually(lambda: producer.closed)
    assert producer.close().dead == 1


def test_other_errors_do_not_close_the_producer(open_producer, cluster):
    producer, _ = open_producer(False, on_severe_errors="stop")
    cluster.down = True
    for number in range(50):
        producer.send_message("orders", number)
    producer.flush(20)

    assert not producer.closed


def test_a_severe_error_is_ignored_unless_the_stop_was_asked_for(open_producer):
    producer, _ = open_producer(False)
    producer._components._notice(Notice("fenced", "critical", "Another process took over.", 0.0))
    producer.send_message("orders", 1)

    assert not producer.closed


@pytest.mark.parametrize("given", ["exit", True, None])
def test_an_unknown_way_to_handle_severe_errors_is_refused(given):
    with pytest.raises(ConfigError, match="on_severe_errors="):
        ReliableKafkaProducer("memory:9092", store=None, on_severe_errors=given)


# waits


def wait_for_room(producer, cluster, send):
    """Fill the client's queue, call `send` on another thread, and return its future once it waits."""
    cluster.code, cluster.down = "hold", True
    assert producer.send_message("orders", 0)
    pool = ThreadPoolExecutor(1)
    waiting = pool.submit(send)
    pool.shutdown(wait=False)
    eventually(lambda: producer._engine.enqueuer._settled._waiting)
    return waiting


def open_circuit(producer, topic):
    """Let as many attempts fail as open the circuit of a topic, while those of another topic succeed."""
    circuits = producer._components.circuits
    for number in range(FAILURES):
        failed = AttemptFailed(
            f"id-{number}", topic, "_MSG_TIMED_OUT", "ambiguous", "late", 1, None, False, 0.0
        )
        circuits.attempt_failed(failed)
    assert producer.circuits.times_opened


def test_a_call_that_waits_for_room_raises_when_the_circuit_opens(open_producer, cluster):
    """Regression: it waited for the whole max_block_ms and raised QueueFull."""
    producer, transport = open_producer(config={"max_block_ms": 600_000}, transport={"capacity": 1})
    waiting = wait_for_room(producer, cluster, lambda: producer.send_message("orders", 1))
    open_circuit(producer, "orders")

    with pytest.raises(CircuitOpen) as refused:
        waiting.result(20)

    assert refused.value.topic is None
    assert producer.get_stats()["circuit_breaker"]["messages_refused"] == 1
    transport.release()


def test_a_batch_that_waits_for_room_reports_the_open_circuit(open_producer, cluster):
    producer, transport = open_producer(config={"max_block_ms": 600_000}, transport={"capacity": 1})
    producer._in_groups = True
    waiting = wait_for_room(producer, cluster, lambda: producer.send_batch("orders", [1, 2, 3]))
    open_circuit(producer, "orders")

    batch = waiting.result(20)

    assert batch["failed"] == 3
    assert all("circuit of the cluster is open" in entry.error for entry in batch["results"])
    transport.release()


def test_a_replay_that_waits_for_room_stops_when_the_circuit_opens(open_producer, cluster, tmp_path):
    """With a journal too: a dead letter that is sent again is not in the journal."""
    producer, transport = open_producer(
        config={"max_block_ms": 600_000}, transport={"capacity": 1}, journal_dir=tmp_path / "journal"
    )
    cluster.down = True
    producer.send_message("orders", 0)
    producer.flush(20)
    replay = partial(producer.replay_dlq_messages, "orders", timeout=600, inconclusive="send")
    waiting = wait_for_room(producer, cluster, replay)
    open_circuit(producer, "orders")

    assert waiting.result(20) == 0
    assert len(producer.get_dlq_messages()) == 1
    transport.release()


def test_with_a_journal_a_call_that_waits_for_room_waits_on(open_producer, cluster, tmp_path):
    producer, _ = open_producer(journal_dir=tmp_path / "journal", config={"max_block_ms": 300})
    producer._engine.enqueuer._saturated = lambda: True  # as with a full disk
    fail_circuit = threading.Timer(0.1, lambda: open_circuit(producer, "orders"))
    fail_circuit.start()

    with pytest.raises(QueueFull):
        producer.send_message("orders", 1)
    fail_circuit.join()
    producer._engine.enqueuer._saturated = lambda: False


def test_a_message_that_waits_for_room_is_withdrawn_with_its_cancelled_call(open_producer, cluster):
    """Regression: it was sent although its caller had given up."""
    producer, transport = open_producer(
        False, config={"max_block_ms": 600_000}, transport={"capacity": 1}, enable_deduplication=True
    )
    cluster.code, cluster.down = "hold", True
    producer.send_message("orders", 0)

    async def give_up():
        sending = asyncio.create_task(producer.send_async("orders", 1, dedup_key="one"))
        while not producer._engine.enqueuer._settled._waiting:
            await asyncio.sleep(0.001)
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)

    asyncio.run(give_up())
    cluster.down = False
    eventually(lambda: transport.release() or producer.pending_count == 0)

    assert producer.get_stats()["messages_sent"] == 1
    assert producer.send_message("orders", 1, dedup_key="one"), "the claim was released"


def test_a_cancelled_call_whose_message_was_accepted_is_delivered_without_an_error(
    open_producer, cluster, caplog
):
    """Regression: the report was logged as `RuntimeError: Event loop is closed`."""
    producer, transport = open_producer(False)
    cluster.code, cluster.down = "hold", True

    async def give_up():
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(producer.send_async("orders", 1), 0.2)

    asyncio.run(give_up())
    cluster.down = False
    eventually(lambda: transport.release() or producer.get_stats()["messages_sent"] == 1)
    producer.close()
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


@pytest.mark.parametrize("age", [1.0, 0.5, 1e-9])
def test_the_advice_about_rare_statistics_works(age):
    """Regression: it said «at most 500, for example 1000»."""
    with pytest.raises(ConfigError) as refused:
        ReliableKafkaProducer(
            "memory:9092", store=None, circuit_breaker=CircuitBreaker(max_in_flight_age_s=age),
            transport=InMemoryTransport.factory(),
        )  # fmt: skip

    advice = refused.value.fix
    if (interval := re.search(r"statistics_interval_ms to at most (\d+)", advice)) is not None:
        with ReliableKafkaProducer(
            "memory:9092", {"statistics_interval_ms": int(interval[1])}, store=None,
            circuit_breaker=CircuitBreaker(max_in_flight_age_s=age), transport=InMemoryTransport.factory(),
        ) as producer:  # fmt: skip
            assert producer.circuits is not None
    longer = float(re.search(r"max_in_flight_age_s to at least ([\d.]+)\.", advice)[1])
    with ReliableKafkaProducer(
        "memory:9092", store=None, circuit_breaker=CircuitBreaker(max_in_flight_age_s=longer),
        transport=InMemoryTransport.factory(),
    ) as producer:  # fmt: skip
        assert producer.circuits is not None
    assert "example" not in advice
