"""The last statistics of a process: kept beside a store that it cannot write to, and merged once by the next process."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

from producer_core import ReliableKafkaProducer
from producer_core.metrics import statistics_log
from producer_core.producer.prometheus import StoreCollector
from producer_core.store import Store
from producer_core.testing import InMemoryTransport
from tests.support import eventually

CHILD = """
import sys
from producer_core import ReliableKafkaProducer
from producer_core.testing import InMemoryTransport
producer = ReliableKafkaProducer("memory:1", store=sys.argv[1], transport=InMemoryTransport.factory())
sys.stdin.readline()
for number in range(7):
    producer.send_message("orders", {"n": number})
producer.flush()
print("acknowledged", flush=True)
sys.stdin.readline()
"""


def make(store, **options):
    return ReliableKafkaProducer("memory:1", store=store, transport=InMemoryTransport.factory(), **options)


def acknowledged(store):
    (totals,) = store.rows("totals")
    return totals["acknowledged"] or 0


def left_beside(path):
    """Return the acknowledgements in the files of running and ended processes."""
    batches = [batch for file in statistics_log._files(path) for batch in statistics_log._read(file)[0]]
    return sum(row.acknowledged for batch in batches for row in batch.statistics)


def end_beside(store, count):
    """Send messages with a producer that ends without the store, so that their statistics are left beside it."""
    producer = make(store.path)
    with store.borrow(write=True):
        for number in range(count):
            producer.send_message("orders", {"n": number})
        producer.flush()
        assert producer.close(timeout=1.0).acknowledged == count
        eventually(lambda: left_beside(store.path) == count)


def test_the_counts_of_a_killed_process_are_merged_once(tmp_path):
    store = Store.open(tmp_path / "store.duckdb")
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(store.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with store.borrow(write=True):  # the child waits for the store from here on
        child.stdin.write("\n")
        child.stdin.flush()
        assert child.stdout.readline() == "acknowledged\n"
        eventually(lambda: left_beside(store.path) == 7)
        child.send_signal(signal.SIGKILL)
        child.wait()
    child.stdin.close()
    child.stdout.close()

    assert acknowledged(store) == 0
    assert [store.recover_statistics() > 0, store.recover_statistics()] == [True, 0]
    assert acknowledged(store) == 7 and statistics_log._files(store.path) == []


def test_a_close_that_cannot_write_to_the_store_leaves_its_statistics_to_the_next_producer(tmp_path):
    store = Store.open(tmp_path / "store.duckdb")
    end_beside(store, 5)
    assert acknowledged(store) == 0

    with make(store.path) as following:
        eventually(lambda: acknowledged(store) == 5)
        following.send_message("orders", {"n": 6})
    assert acknowledged(store) == 6 and statistics_log._files(store.path) == []
    (closed,) = store.rows("metric_producers", alive_since=0.0)
    assert closed["running"] == 0


def test_a_scrape_of_the_store_includes_the_statistics_of_ended_processes(tmp_path):
    store = Store.open(tmp_path / "store.duckdb")
    end_beside(store, 1)

    families = {family.name: family for family in StoreCollector(store).collect()}
    (sample,) = families["messaging_client_sent_messages"].samples
    assert sample.value == 1


def test_a_process_that_is_killed_while_it_merges_counts_nothing_twice(tmp_path):
    store = Store.open(tmp_path / "store.duckdb")
    end_beside(store, 5)
    (file,) = statistics_log._files(store.path)
    content = file.read_bytes()
    assert store.recover_statistics() > 0
    file.write_bytes(content)  # as if the process had been killed between the commit and the deletion

    assert store.recover_statistics() == 0
    assert acknowledged(store) == 5


def test_stats_include_the_statistics_of_ended_processes(tmp_path):
    store = Store.open(tmp_path / "store.duckdb")
    end_beside(store, 1)
    done = subprocess.run(
        [sys.executable, "-m", "producer_core", "stats", "--json", "--store", str(store.path)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert json.loads(done.stdout)["messages_sent"] == 1


def test_a_relative_path_or_a_link_to_the_store_leaves_the_statistics_beside_the_store(tmp_path, monkeypatch):
    store = Store.open(tmp_path / "data" / "store.duckdb")
    (tmp_path / "link.duckdb").symlink_to(store.path)
    monkeypatch.chdir(tmp_path)
    producer = make("link.duckdb")
    monkeypatch.chdir("/")
    with store.borrow(write=True):
        producer.send_message("orders", {"n": 1})
        producer.flush()
        producer.close(timeout=1.0)
    assert left_beside(store.path) == 1


def test_a_session_that_continues_numbers_its_batches_after_those_of_its_killed_process(tmp_path):
    store, journal = Store.open(tmp_path / "store.duckdb"), tmp_path / "journal"
    for count in (3, 4):
        producer = make(store.path, journal_dir=journal)
        with store.borrow(write=True):
            for number in range(count):
                producer.send_message("orders", {"n": number})
            producer.flush()
            producer.close(timeout=1.0)
    store.recover_statistics()
    eventually(lambda: acknowledged(store) == 7)
