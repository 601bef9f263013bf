"""Test the shutdown of a producer by close, exit, fork and SIGTERM: each accepted message has an outcome."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading

import pytest
from confluent_kafka import Consumer, TopicPartition

from producer_core import ReliableKafkaProducer
from producer_core.brokers import embedded
from producer_core.dlq import DeadLetterFilter, DeadLetters, Spill
from producer_core.errors import ProducerClosed
from producer_core.producer.dead_letter_backend import spill_path
from producer_core.store import Store
from tests.support import eventually

COMMAND = (sys.executable, "-m", "producer_core.cli")


@pytest.fixture(scope="module")
def broker():
    with embedded.start(brokers=1, topics={"warm": 1}) as running:
        yield running


@pytest.fixture
def topic(broker, request):
    name = f"t{abs(hash(request.node.name))}"
    broker.create_topic(name, partitions=1)
    return name


def make(broker, config=None, **options):
    options.setdefault("store", None)
    return ReliableKafkaProducer(broker.bootstrap_servers, config, **options)


def on_topic(broker, topic):
    """Return the values on a topic's only partition."""
    with reader(broker) as consumer:
        end = end_of(consumer, topic)
        consumer.assign([TopicPartition(topic, 0, 0)])
        found = []
        while len(found) < end:
            found += [message.value() for message in consumer.consume(end, timeout=10)]
        return found


@contextlib.contextmanager
def reader(broker):
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "look"})
    with contextlib.closing(consumer):
        yield consumer


def end_of(consumer, topic):
    return consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)[1]


def written(broker, topic):
    """Return the number of records ever written to the topic; the embedded broker keeps 5 MB of them."""
    with reader(broker) as consumer:
        return end_of(consumer, topic)


def run(code, *arguments):
    """Run code in a separate Python; on a timeout, kill it with the processes that it forked."""
    words = [sys.executable, "-c", code, *map(str, arguments)]
    process = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        out, err = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise
    return subprocess.CompletedProcess(words, process.returncode, out, err)


HEAD = """
import os, sys
from producer_core import ReliableKafkaProducer
servers, topic, store = sys.argv[1:4]
producer = ReliableKafkaProducer(servers, store=None if store == "none" else store)
"""


# closing


def test_a_with_block_delivers_every_accepted_message(broker, topic):
    with make(broker) as producer:
        for number in range(1000):
            producer.send_message(topic, b"%d" % number)
    report = producer.close()

    assert (report.acknowledged, report.dead, report.lost) == (1000, 0, 0)
    assert len(on_topic(broker, topic)) == 1000


def test_a_with_block_that_raises_delivers_its_messages_and_propagates_the_error(broker, topic):
    with pytest.raises(ZeroDivisionError), make(broker) as producer:
        producer.send_message(topic, b"1")
        raise ZeroDivisionError
    assert producer.close().acknowledged == 1


def test_repeated_and_concurrent_close_calls_return_the_same_report(broker, topic):
    producer = make(broker)
    producer.send_message(topic, b"1")
    reports = []
    threads = [threading.Thread(target=lambda: reports.append(producer.close())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert len(reports) == 4
    assert {id(report) for report in (*reports, producer.close())} == {id(reports[0])}
    assert reports[0].acknowledged == 1
    with pytest.raises(ProducerClosed):
        producer.send_message(topic, b"2")


def test_close_in_a_delivery_callback_neither_hangs_nor_loses_messages(broker, topic):
    producer, heard = make(broker), []
    begun = threading.Event()

    def close_at_once(report):
        heard.append(report)
        begun.wait(60)  # all are sent
        if len(heard) == 1:
            producer.close(timeout=60)

    for _ in range(1000):
        producer.send_message(topic, b"x", on_delivery=close_at_once)
    begun.set()

    eventually(lambda: producer.close().acknowledged == 1000, timeout=60)
    assert [report.error for report in heard] == [None] * 1000
    assert len(on_topic(broker, topic)) == 1000


def test_close_during_an_outage_keeps_its_timeout_and_creates_dead_letters(tmp_path):
    with embedded.start(brokers=1, topics={"orders": 1}) as broker:
        producer = make(broker, store=tmp_path / "store.duckdb", cluster_id=broker.cluster_id)
        for number in range(5):
            producer.send_message("orders", b"%d" % number)
        producer.flush(60)
        broker.down()
        ids = {producer.send_message("orders", b"%d" % number) for number in range(5, 105)}
        report = producer.close(timeout=1)

    assert (report.acknowledged, report.dead, report.journaled, report.lost) == (5, 100, 0, 0)
    store = Store.open(tmp_path / "store.duckdb")
    dead_letters = DeadLetters(store).find(DeadLetterFilter(), limit=1000)
    store.close()
    assert {dead_letter.message_id for dead_letter in dead_letters} == ids
    assert {dead_letter.verdict for dead_letter in dead_letters} <= {"not_sent", "possibly_persisted"}


HOLDING = """
import duckdb, sys, time
while True:
    try:
        shell = duckdb.connect(sys.argv[1], read_only=True)
        break
    except duckdb.IOException:
        time.sleep(0.01)
print("held", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def held_by_a_notebook(path):
    """Keep the store's file open read-only in another process that uses plain DuckDB."""
    command = [sys.executable, "-c", HOLDING, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        yield
        process.stdin.close()


def test_close_spills_dead_letters_while_another_process_locks_the_store(tmp_path):
    path = tmp_path / "store.duckdb"
    with embedded.start(brokers=1, topics={"orders": 1}) as broker:
        producer = make(broker, store=path, cluster_id=broker.cluster_id)
        producer.send_message("orders", b"0")
        producer.flush(60)
        broker.down()
        with held_by_a_notebook(path):
            ids = {producer.send_message("orders", b"%d" % number) for number in range(10)}
            report = producer.close(timeout=2)
            spilled = {dead_letter.message_id for dead_letter in Spill(spill_path(path)).take()}

    assert (report.dead, report.lost) == (10, 0)
    assert spilled == ids


def test_the_report_of_a_close_without_timeout_adds_up(broker, topic):
    producer = make(broker)
    heard = []
    for number in range(500):
        producer.send_message(topic, b"%d" % number, on_delivery=heard.append)
    report = producer.close(timeout=0)

    assert report.acknowledged + report.dead + report.journaled == 500
    assert len(heard) == 500
    assert sum(one.error is None for one in heard) == report.acknowledged


def test_a_send_during_close_is_either_accepted_and_settled_or_refused(broker, topic):
    producer, accepted, heard = make(broker), [], []
    begun = threading.Event()

    def send():
        with contextlib.suppress(ProducerClosed):
            while True:
                accepted.append(producer.send_message(topic, b"x", on_delivery=heard.append))
                begun.set()

    threads = [threading.Thread(target=send) for _ in range(3)]
    for thread in threads:
        thread.start()
    assert begun.wait(60)
    report = producer.close()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)

    eventually(lambda: len(heard) >= len(accepted), timeout=60)
    assert {one.message_id for one in heard} >= set(accepted)
    assert producer.pending_count == 0
    assert report.lost == 0


def test_journaled_messages_left_at_close_are_sent_at_the_next_start(tmp_path):
    with embedded.start(brokers=1, topics={"orders": 1}) as broker:
        producer = make(broker, journal_dir=tmp_path / "journal")
        for number in range(5):
            producer.send_message("orders", b"%d" % number)
        producer.flush(60)
        broker.down()
        ids = {producer.send_message("orders", b"%d" % number) for number in range(5, 105)}
        report = producer.close(timeout=1)
        broker.up()
        with make(broker, journal_dir=tmp_path / "journal") as again:
            again.flush(60)
        found = on_topic(broker, "orders")

    assert (report.acknowledged, report.dead, report.journaled, report.lost) == (5, 0, 100, 0)
    assert len(ids) == 100
    assert again.close().acknowledged == 100
    assert set(found) == {b"%d" % number for number in range(105)}


# exit without close


def test_a_producer_left_open_delivers_its_messages_at_exit(broker, topic):
    done = run(
        HEAD + "for number in range(500): producer.send_message(topic, b'x')",
        broker.bootstrap_servers,
        topic,
        "none",
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert len(on_topic(broker, topic)) == 500


def test_sys_exit_and_an_uncaught_exception_deliver_accepted_messages(broker, topic):
    for ending, code in (("sys.exit(3)", 3), ("raise SystemError", 1)):
        done = run(
            HEAD + f"producer.send_message(topic, b'x')\n{ending}", broker.bootstrap_servers, topic, "none"
        )
        assert done.returncode == code
    assert len(on_topic(broker, topic)) == 2


def test_messages_left_at_exit_without_a_broker_are_dead_letters_in_the_store(topic, tmp_path):
    path = tmp_path / "store.duckdb"
    with embedded.start(brokers=1, topics={topic: 1}) as broker:
        servers = broker.bootstrap_servers
    done = run(HEAD + "for number in range(7): producer.send_message(topic, b'x')", servers, topic, path)

    assert done.returncode == 0, done.stderr
    store = Store.open(path)
    assert DeadLetters(store).count(DeadLetterFilter()) == 7
    store.close()


# forks


def test_a_forked_child_gets_an_error_and_its_parent_continues(broker, topic):
    code = (
        HEAD
        + """
from producer_core.errors import ForkedProducer
producer.send_message(topic, b"before")
child = os.fork()
if child == 0:
    try:
        producer.send_message(topic, b"by the child")
    except ForkedProducer as error:
        print(type(error).__name__, error, flush=True)
    print(producer.close(), flush=True)  # harmless, and at once
    sys.exit(0)
_, status = os.waitpid(child, 0)
producer.send_message(topic, b"after")
print(os.waitstatus_to_exitcode(status), producer.close().acknowledged)
"""
    )
    done = run(code, broker.bootstrap_servers, topic, "none")

    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert "acknowledged=0, dead=0" in said[1]
    assert said[0].startswith("ForkedProducer")
    assert "Create one in the child" in said[0]
    assert said[-1] == "0 2"
    assert sorted(on_topic(broker, topic)) == [b"after", b"before"]


def test_a_forked_child_can_create_its_own_producer(broker, topic):
    code = (
        HEAD
        + """
producer.send_message(topic, b"parent")
child = os.fork()
if child == 0:
    with ReliableKafkaProducer(servers, store=None) as own:
        own.send_message(topic, b"child")
    os._exit(0 if own.close().acknowledged == 1 else 1)
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status), producer.close().acknowledged)
"""
    )
    done = run(code, broker.bootstrap_servers, topic, "none")

    assert done.stdout.splitlines() == ["0 1"], done.stderr
    assert sorted(on_topic(broker, topic)) == [b"child", b"parent"]


def test_a_multiprocessing_child_gets_an_error_too(broker, topic):
    code = (
        HEAD
        + """
import multiprocessing
from producer_core.errors import ForkedProducer

def work(said):
    try:
        producer.send_message(topic, b"by the child")
    except ForkedProducer:
        said.put("forked")

if __name__ == "__main__":
    fork = multiprocessing.get_context("fork")
    said = fork.SimpleQueue()
    child = fork.Process(target=work, args=(said,))
    child.start()
    print(said.get())
    child.join()
    producer.send_message(topic, b"by the parent")
    print(child.exitcode, producer.close().acknowledged)
"""
    )
    done = run(code, broker.bootstrap_servers, topic, "none")

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["forked", "0 1"]
    assert on_topic(broker, topic) == [b"by the parent"]


JOURNALED = """
import os, signal, sys
from producer_core import ReliableKafkaProducer
from producer_core.errors import JournalLocked
servers, topic, folder = sys.argv[1:4]
producer = ReliableKafkaProducer(servers, store=None, journal_dir=folder)
producer.send_message(topic, b"parent")
producer.flush()
child = os.fork()
"""


def test_a_journal_can_be_reopened_while_a_forked_child_is_alive(broker, topic, tmp_path):
    code = (
        JOURNALED
        + """
if child == 0:
    signal.pause()
producer.close()
try:
    with ReliableKafkaProducer(servers, store=None, journal_dir=folder) as again:
        again.send_message(topic, b"again")
    print(again.close().acknowledged)
finally:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
"""
    )
    done = run(code, broker.bootstrap_servers, topic, tmp_path / "journal")
    assert done.stdout == "1\n", done.stderr


def test_a_forked_child_cannot_open_its_parents_journal(broker, topic, tmp_path):
    code = (
        JOURNALED
        + """
if child == 0:
    try:
        ReliableKafkaProducer(servers, store=None, journal_dir=folder)
    except JournalLocked as error:
        print(str(os.getppid()) in str(error), flush=True)
    os._exit(0)
os.waitpid(child, 0)
producer.send_message(topic, b"after")
print(producer.close().acknowledged)
"""
    )
    done = run(code, broker.bootstrap_servers, topic, tmp_path / "journal")
    assert done.stdout == "True\n2\n", done.stderr


# the command line, interrupted by SIGTERM


def test_sigterm_during_a_send_settles_and_reports_accepted_messages(broker, topic, tmp_path):
    path = tmp_path / "store.duckdb"
    arguments = ["send", topic, "-", "-b", broker.bootstrap_servers, "--store", str(path), "--json"]
    process = subprocess.Popen([*COMMAND, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    stopped = threading.Event()

    def feed():
        with contextlib.suppress(OSError):
            while not stopped.is_set():
                process.stdin.write(b'{"n":1}\n' * 100)
                process.stdin.flush()

    feeder = threading.Thread(target=feed)
    feeder.start()
    try:
        eventually(lambda: written(broker, topic), timeout=60)
        process.send_signal(signal.SIGTERM)
        out = process.stdout.read()
        code = process.wait(60)
    finally:
        stopped.set()
        process.kill()
        feeder.join(60)
        process.stdout.close()
        with contextlib.suppress(OSError):
            process.stdin.close()

    said = json.loads(out)
    assert code == said["exit_code"] == 130
    assert said["interrupted"]
    assert said["accepted"] == said["acknowledged"] + said["dead"] > 0
    assert written(broker, topic) == said["acknowledged"]
    assert said["last_position"] == said["rows"]


def test_a_second_sigterm_during_an_outage_keeps_unsent_messages(tmp_path):
    path = tmp_path / "store.duckdb"
    with embedded.start(brokers=1, topics={"orders": 1}) as broker:
        arguments = ["send", "orders", "-", "-b", broker.bootstrap_servers, "--store", str(path), "--json"]
        process = subprocess.Popen(
            [*COMMAND, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        try:
            process.stdin.write(b'{"n":1}\n' * 5)
            process.stdin.flush()
            eventually(lambda: written(broker, "orders") == 5, timeout=60)
            broker.down()
            process.stdin.write(b'{"n":2}\n' * 50)
            process.stdin.flush()
            eventually(lambda: pending_in(path) == 50, timeout=60)

            process.send_signal(signal.SIGTERM)
            with pytest.raises(subprocess.TimeoutExpired):  # it waits for what it accepted
                process.communicate(timeout=3)
            process.send_signal(signal.SIGTERM)
            out, _ = process.communicate(timeout=60)
        finally:
            process.kill()
            process.communicate()

    said = json.loads(out)
    assert process.returncode == said["exit_code"] == 130
    assert (said["accepted"], said["acknowledged"], said["dead"]) == (55, 5, 50)
    store = Store.open(path)
    assert DeadLetters(store).count(DeadLetterFilter()) == 50
    store.close()


def pending_in(path):
    """Return the number of messages that the producer reports as accepted and not settled."""
    store = Store.open(path)
    try:
        with store.borrow() as connection:
            found = connection.execute("SELECT max(pending) FROM producers").fetchone()[0]
    finally:
        store.close()
    return found
