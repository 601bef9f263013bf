"""The metrics of a process are those of its store: the same names, the same numbers, one source each."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import urllib.request

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from producer_core import CircuitBreaker, CircuitOpen, ReliableKafkaProducer, RetryConfig
from producer_core.errors import ConfigError, StoreLocked
from producer_core.producer.prometheus import ProducerCollector, StoreCollector, start_metrics_server
from producer_core.producer.prometheus.definitions import METRICS
from producer_core.store import Store
from producer_core.testing import FakeClock, InMemoryTransport
from tests.support import eventually
from tests.unit.metrics.test_client_stats import broker, statistics


def made(store, made=None, **options):
    script = options.pop("script", None)
    return ReliableKafkaProducer(
        "memory:1",
        store=store,
        transport=InMemoryTransport.factory(made, script=script),
        retry_config=RetryConfig(max_retries=2, initial_delay_ms=1, max_delay_ms=2),
        **options,
    )


def samples(collector):
    """Return the value of every sample by its name and labels."""
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(generate_latest(collector).decode())
        for sample in family.samples
    }


def values(collector, name):
    return {key[1:]: value for key, value in samples(collector).items() if key[0] == name}


def client_statistics(*brokers, **changes):
    """Return statistics as a transport reports them: each topic has its partitions."""
    found = statistics(*brokers, **changes)
    return found | {"topics": {name: {**topic, "partitions": {}} for name, topic in found["topics"].items()}}


def fail_some(delivery):
    if delivery.seq % 10 == 3:
        return "MSG_SIZE_TOO_LARGE"
    first = len(delivery.attempts) == 0
    return "REQUEST_TIMED_OUT" if delivery.seq % 10 == 5 and first else None


def send(producer, count=40, topics=("orders", "refunds")):
    for number in range(count):
        producer.send_message(topics[number % len(topics)], {"n": number})


def test_the_counters_of_a_process_equal_those_of_its_store(tmp_path):
    transports = []
    producer = made(tmp_path / "s.duckdb", transports, script=fail_some)
    process, store = ProducerCollector(producer), StoreCollector(Store.open(tmp_path / "s.duckdb"))
    send(producer)
    transports[0]._listener.statistics(
        client_statistics(broker(), broker(2, rtt={"cnt": 3, "sum": 700}), eos={"epoch_cnt": 2})
    )
    producer.close()

    ours, theirs = samples(process), samples(store)

    counted = {name for name, definition in METRICS.items() if definition.type != "gauge"}
    for key in ours.keys() | theirs.keys():
        if any(key[0] in (name, f"{name}_sum", f"{name}_count", f"{name}_bucket") for name in counted):
            assert ours[key] == pytest.approx(theirs[key], abs=1e-4), key
    sent = sum(values(process, "messaging_client_sent_messages_total").values())
    dead = sum(values(process, "producer_core_dead_letters_total").values())
    assert (sent, dead) == (36, 4)
    assert sum(values(store, "producer_core_stored_dead_letters").values()) == 4
    assert values(process, "producer_core_client_batches_total") == {(): 5}
    assert values(process, "producer_core_broker_round_trip_seconds_count") == {
        (("broker", "1"),): 2,
        (("broker", "2"),): 3,
    }


def test_each_source_has_the_metrics_that_the_table_names(tmp_path):
    options = {"journal_dir": tmp_path / "j", "enable_deduplication": True, "circuit_breaker": True}
    with made(tmp_path / "s.duckdb", **options) as producer:
        send(producer, 1)
        producer.flush(10)
        found = {
            "process": ProducerCollector(producer),
            "store": StoreCollector(Store.open(tmp_path / "s.duckdb")),
        }
        heartbeat = "producer_core_last_heartbeat_timestamp_seconds"
        assert eventually(lambda: values(found["store"], heartbeat))
        for source, collector in found.items():
            families = {
                f"{family.name}_total" if family.type == "counter" else family.name
                for family in collector.collect()
            }
            named = {name for name, definition in METRICS.items() if source in definition.sources}
            # with a store, a process leaves its dead letters to the store's endpoint
            assert families == named - (
                {"producer_core_stored_dead_letters"} if source == "process" else set()
            )


def test_a_process_without_a_store_counts_the_dead_letters_in_memory():
    with made(None, script=fail_some) as producer:
        send(producer, 20, ("orders",))
        producer.flush(10)

        found = values(ProducerCollector(producer), "producer_core_stored_dead_letters")

    ((labels, count),) = found.items()
    assert dict(labels)["error_type"] == "MSG_SIZE_TOO_LARGE"
    assert dict(labels)["state"] == "dead"
    assert count == 2


def test_the_state_of_a_process_covers_its_running_producers():
    held = []
    waiting = made(None, held, script=lambda delivery: "hold")
    closed = made(None)
    closed.close()
    collector = ProducerCollector(waiting, closed)
    send(waiting, 3)

    assert values(collector, "producer_core_producers") == {(): 1}
    assert values(collector, "producer_core_pending_messages") == {(): 3}
    assert values(collector, "producer_core_connected_producers") == {(): 1}
    assert values(collector, "producer_core_application_producers") == {(("application", ""),): 1}
    assert eventually(lambda: held[0].held == 3)
    held[0].release()
    waiting.close()
    assert values(collector, "producer_core_producers") == {(): 0}


def test_the_totals_of_a_closed_producer_remain_and_another_is_added():
    first = made(None)
    collector = ProducerCollector(first)
    send(first, 4, ("orders",))
    first.close()
    second = made(None)
    collector.add(second)
    send(second, 5, ("orders",))
    second.close()

    assert list(values(collector, "messaging_client_sent_messages_total").values()) == [9]


def test_the_client_statistics_add_up_between_and_across_scrapes():
    transports = []
    with made(None, transports) as producer:
        collector = ProducerCollector(producer)
        for tx in (10, 25):
            transports[0]._listener.statistics(client_statistics(broker(tx=tx)))
        values(collector, "producer_core_broker_requests_total")
        transports[0]._listener.statistics(client_statistics(broker(tx=30)))

        assert values(collector, "producer_core_broker_requests_total") == {(("broker", "1"),): 30}
        assert values(collector, "producer_core_client_batches_total") == {(): 15}


def test_a_journal_and_deduplication_are_visible(tmp_path):
    transports = []
    options = {"journal_dir": tmp_path / "j", "enable_deduplication": True}
    with made(None, transports, script=lambda delivery: "hold", **options) as producer:
        collector = ProducerCollector(producer)
        send(producer, 3)

        assert values(collector, "producer_core_journal_messages") == {(): 3}
        assert values(collector, "producer_core_journal_bytes")[()] > 0
        assert values(collector, "producer_core_deduplication_degraded") == {(): 0}
        assert eventually(lambda: transports[0].held == 3)
        transports[0].release()


def test_circuits_are_counted_by_topic_and_state(tmp_path):
    def refuse(delivery):
        return "TOPIC_AUTHORIZATION_FAILED" if delivery.topic == "orders" else None

    breaker = CircuitBreaker(minimum_number_of_calls=5)
    with made(None, script=refuse, circuit_breaker=breaker) as producer, made(None) as plain:
        collector = ProducerCollector(producer, plain)
        send(producer, 10)
        producer.flush(10)
        with pytest.raises(CircuitOpen):
            producer.send_message("orders", 1)

        found = values(collector, "producer_core_circuits")

        topic = "messaging_destination_name"
        assert {key: value for key, value in found.items() if value} == {
            ((topic, ""), ("state", "closed")): 1,
            ((topic, "orders"), ("state", "open")): 1,
        }
        assert found[(topic, ""), ("state", "open")] == 0
        assert values(collector, "producer_core_refused_messages_total") == {((topic, "orders"),): 1}
        assert values(collector, "producer_core_circuit_openings_total") == {(): 1}


def test_a_process_without_a_circuit_breaker_has_no_metrics_of_circuits():
    with made(None) as producer:
        assert not [key for key in samples(ProducerCollector(producer)) if "circuit" in key[0]]


def test_the_server_answers_for_its_producers():
    with made(None) as producer, start_metrics_server(0, producer) as server:
        send(producer, 2, ("orders",))
        producer.flush(10)

        with urllib.request.urlopen(server.url, timeout=10) as response:
            text = response.read().decode()

    assert 'messaging_destination_name="orders"' in text
    assert server.url.startswith("http://127.0.0.1:")


def test_an_existing_registry_accepts_the_collector():
    with made(None) as producer:
        registry = CollectorRegistry()
        registry.register(ProducerCollector(producer))

        assert b"producer_core_producers 1.0" in generate_latest(registry)


def test_no_producer_is_an_error():
    with pytest.raises(ConfigError, match="No producer was given"):
        start_metrics_server(0)


@pytest.mark.slow
def test_a_producer_that_is_not_measured_does_not_import_the_client_library():
    code = (
        "import sys, producer_core\n"
        "from producer_core.testing import InMemoryTransport\n"
        "producer_core.ReliableKafkaProducer(store=None, transport=InMemoryTransport).close()\n"
        "assert 'prometheus_client' not in sys.modules and 'producer_core.producer.prometheus' not in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


@pytest.mark.slow
def test_a_missing_client_library_is_reported_with_the_extra():
    code = "import sys; sys.modules['prometheus_client'] = None; import producer_core.producer.prometheus"

    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)

    assert "pip install 'producer-core[prometheus]'" in found.stderr


@pytest.mark.slow
def test_increases_at_the_store_equal_the_acknowledgements_of_workers_that_come_and_go(tmp_path):
    """Four workers send at once; each closes its producer after 25 messages and starts another."""
    store, acknowledged = tmp_path / "s.duckdb", []
    Store.open(store)
    collector, done = StoreCollector(Store.open(store)), threading.Event()

    def work():
        for _ in range(2):
            with made(store) as producer:
                send(producer, 25)
            acknowledged.append(producer.get_stats()["messages_sent"])

    workers = [threading.Thread(target=work) for _ in range(4)]
    scrapes = []

    def scrape():
        while not done.wait(0.5):
            with contextlib.suppress(StoreLocked):  # the endpoint answers 503
                scrapes.append(sum(values(collector, "messaging_client_sent_messages_total").values()))

    scraper = threading.Thread(target=scrape)
    for thread in (*workers, scraper):
        thread.start()
    for worker in workers:
        worker.join()
    done.set()
    scraper.join()

    assert scrapes == sorted(scrapes)
    assert sum(acknowledged) == 200
    assert sum(values(collector, "messaging_client_sent_messages_total").values()) == 200
    assert values(collector, "producer_core_producers") == {(): 0}


# arguments


@pytest.mark.parametrize(
    "given", [5, None, [], ReliableKafkaProducer, object()], ids=lambda given: type(given).__name__
)
def test_anything_but_a_producer_is_an_error_with_a_fix(given):
    with pytest.raises(ConfigError, match="is not a producer") as raised:
        start_metrics_server(0, given)

    assert raised.value.fix == "Pass instances: start_metrics_server(9464, producer, another_producer)."


@pytest.mark.parametrize("given", [None, "p"], ids=repr)
def test_the_fix_of_a_collector_names_the_collector(given):
    with pytest.raises(ConfigError, match="is not a producer") as raised:
        ProducerCollector(given)

    assert raised.value.fix == "Pass instances: ProducerCollector(producer, another_producer)."


@pytest.fixture
def producer():
    with made(None) as producer:
        yield producer


def test_a_producer_that_is_given_twice_would_count_twice(producer):
    with pytest.raises(ConfigError, match="collected already"):
        start_metrics_server(0, producer, producer)


@pytest.mark.parametrize("topics", [-1, "all", None, 1.5, True], ids=repr)
def test_an_invalid_number_of_topics_is_an_error_with_a_fix(producer, topics):
    with pytest.raises(ConfigError, match="topics must be a whole number, 0 or more, not ") as raised:
        start_metrics_server(0, producer, topics=topics)

    assert raised.value.fix == "Leave it out for 200 topics with a label of their own."


def test_a_port_that_is_no_number_is_an_error_and_not_a_bare_type_error(producer):
    with pytest.raises(ConfigError, match="port must be a whole number"):
        start_metrics_server("9464", producer)


def in_child(check, timeout=60):
    """Fork, and return whether `check` returned true in the child within `timeout` seconds."""
    process = os.fork()
    if not process:
        try:
            signal.alarm(timeout)  # ends a child that waits for a lock of the parent
            os._exit(0 if check() else 1)
        except BaseException:
            os._exit(2)
    return os.waitpid(process, 0)[1] == 0


def test_a_fork_during_scrapes_leaves_a_child_that_neither_waits_nor_repeats_counts(tmp_path):
    registry = CollectorRegistry()
    with made(tmp_path / "store.duckdb") as producer:
        send(producer)
        producer.flush()
        collector, store = ProducerCollector(producer), StoreCollector(Store.open(tmp_path / "store.duckdb"))
        registry.register(collector)
        stop = threading.Event()

        def scrape():
            while not stop.is_set():
                collector.render()
                store.render()

        scrapers = [threading.Thread(target=scrape) for _ in range(2)]
        for thread in scrapers:
            thread.start()
        try:
            children = [
                in_child(lambda: b"producer_core" not in generate_latest(registry) and store.render())
                for _ in range(5)
            ]
        finally:
            stop.set()
            for thread in scrapers:
                thread.join()
    assert children == [True] * 5
    assert b"messaging_client_sent_messages_total{" in collector.render()


def test_scrapes_during_a_close_see_no_counter_fall():
    fallen, stop = [], threading.Event()
    producers = [made(None) for _ in range(4)]
    collector = ProducerCollector(*producers)

    def scrape():
        before = 0.0
        while not stop.is_set():
            found = sum(values(collector, "messaging_client_sent_messages_total").values())
            if found < before:
                fallen.append((before, found))
            before = found

    scrapers = [threading.Thread(target=scrape) for _ in range(2)]
    for thread in scrapers:
        thread.start()
    for producer in producers:
        send(producer)
        producer.close()
    stop.set()
    for thread in scrapers:
        thread.join()
    assert fallen == []
    assert sum(values(collector, "messaging_client_sent_messages_total").values()) == 160


def test_two_producers_with_the_same_client_id_on_one_store_are_both_counted(tmp_path):
    config = {"client.id": "orders"}
    with (
        made(tmp_path / "s.duckdb", config=config) as one,
        made(tmp_path / "s.duckdb", config=config) as other,
    ):
        send(one, 10)
        send(other, 30)
    store = StoreCollector(Store.open(tmp_path / "s.duckdb"))
    assert sum(values(store, "messaging_client_sent_messages_total").values()) == 40


def test_no_counter_of_a_store_falls_when_the_clock_is_set_back(tmp_path):
    clock = FakeClock(1_800_000_000.0)
    path = tmp_path / "s.duckdb"
    collector = StoreCollector(Store.open(path), clock=clock)
    totals = []
    for step in (0.0, 7200.0, -86_400.0, 100.0):
        clock.advance(step)
        with made(path, clock=clock) as producer:
            send(producer, 10)
        found = samples(collector)
        totals.append(
            [
                sum(value for key, value in found.items() if key[0] == f"messaging_client_{name}")
                for name in ("sent_messages_total", "operation_duration_seconds_count")
            ]
        )
    assert totals == [[10, 10], [20, 20], [30, 30], [40, 40]]
