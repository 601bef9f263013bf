"""The process of `make run`, started and ended as users do: in a terminal, in the background, killed."""

import fcntl
import http.client
import os
import pty
import re
import signal
import subprocess
import sys
import termios
import threading
import time
from collections import Counter

import psutil
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from producer_core import replay
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.messages import id_text, record_id
from producer_core.simulate.dashboard_process import ReservedPort
from producer_core.store import Store
from tests.support import eventually

pytestmark = pytest.mark.slow

STARTS_WITHIN = 120
ENDS_WITHIN = 60


class Run:
    """The process in its own terminal, with its output."""

    def __init__(self, *arguments, ignoring_sigint=False):
        self.terminal, side = pty.openpty()
        self.text = ""

        def own_terminal():
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
            signal.signal(signal.SIGINT, signal.SIG_IGN if ignoring_sigint else signal.SIG_DFL)

        self.process = subprocess.Popen(
            [sys.executable, "-m", "producer_core.simulate.live", *map(str, arguments)],
            stdin=side,
            stdout=side,
            stderr=side,
            preexec_fn=own_terminal,
        )
        os.close(side)
        self.family = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        try:
            while data := os.read(self.terminal, 4096):
                self.text += data.decode(errors="replace").replace("\r\n", "\n")
        except OSError:  # the other side of the terminal is closed
            pass

    @property
    def store(self):
        return Store.open(re.search("^Store: (.+)$", self.text, re.M).group(1), create=False)

    @property
    def port(self):
        """Return the last printed port: a restarted dashboard may get another one."""
        return int(re.findall(r"^http://127\.0\.0\.1:(\d+)$", self.text, re.M)[-1])

    def is_up(self):
        assert self.process.poll() is None, self.text
        return "Store: " in self.text and self.text.endswith("\n")

    def wait_until_up(self):
        eventually(self.is_up, STARTS_WITHIN)
        self.family = psutil.Process(self.process.pid).children(recursive=True)
        assert self.family
        return self

    def dashboard(self):
        return next(child for child in self.family if "streamlit" in " ".join(child.cmdline()))

    def healthy(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=2)
        try:
            connection.request("GET", "/_stcore/health")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    def type_ctrl_c(self):
        os.write(self.terminal, b"\x03")

    def assert_ends_cleanly(self):
        assert self.process.wait(ENDS_WITHIN) == 0, self.text
        eventually(lambda: not [child for child in self.family if child.is_running()])
        assert "Traceback" not in self.text


@pytest.fixture
def start(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    runs = []

    def started(*arguments, **options):
        runs.append(Run(*arguments, **options))
        return runs[-1]

    yield started
    for run in runs:
        if run.process.poll() is None:
            run.process.kill()
            run.process.wait()
        os.close(run.terminal)


@pytest.fixture
def port():
    """Return the first of several free ports; if it is taken in the meantime, the next one is used."""
    free = ReservedPort.first_free(18800)
    free.release()
    return free.number


def dead(store, **where):
    return DeadLetters(store).count(DeadLetterFilter(**where))


def listens_on(process):
    return {
        connection.laddr.ip
        for connection in process.net_connections(kind="inet")
        if connection.status == psutil.CONN_LISTEN
    }


def test_ctrl_c_ends_all_processes_and_a_second_run_works(start, port):
    first = start("--port", port).wait_until_up()
    lines = first.text.splitlines()
    assert len([line for line in lines if line]) == (3 if first.port == port else 4)
    eventually(first.healthy)
    assert listens_on(psutil.Process(first.process.pid)) | listens_on(first.dashboard()) == {"127.0.0.1"}
    store = first.store
    eventually(lambda: dead(store, topic="audit-log") > 1, 60)

    first.type_ctrl_c()

    first.assert_ends_cleanly()
    before = dead(store)
    assert before > 1
    [old] = {dead_letter.cluster_id for dead_letter in DeadLetters(store).find(DeadLetterFilter())}

    second = start("--port", port).wait_until_up()
    assert second.store.path == store.path
    eventually(lambda: dead(second.store) > 1, 60)
    assert old not in {
        dead_letter.cluster_id for dead_letter in DeadLetters(second.store).find(DeadLetterFilter())
    }
    assert dead(Store.open(store.path.with_name("demo-earlier.duckdb"))) == before
    second.process.terminate()
    second.assert_ends_cleanly()


def test_two_concurrent_runs_share_the_store_and_the_second_prints_its_port(start, port):
    first = start("--port", port).wait_until_up()
    second = start("--port", first.port).wait_until_up()

    assert f"Port {first.port} is in use; using {second.port}." in second.text
    eventually(lambda: first.healthy() and second.healthy())
    eventually(
        lambda: len({row.cluster_id for row in DeadLetters(first.store).find(DeadLetterFilter())}) == 2
    )
    for run in (first, second):
        run.process.terminate()
    for run in (first, second):
        run.assert_ends_cleanly()
        assert "locked" not in run.text.lower()


def test_sigint_ends_a_background_run_started_with_sigint_ignored(start, port):
    run = start("--port", port, ignoring_sigint=True).wait_until_up()

    run.process.send_signal(signal.SIGINT)

    run.assert_ends_cleanly()


@pytest.mark.parametrize("after", [0.15, 0.6, 1.2])
def test_ctrl_c_during_the_start_ends_the_run(start, port, after):
    run = start("--port", port)
    with pytest.raises(subprocess.TimeoutExpired):
        run.process.wait(after)  # at several moments of the start, none of which may hang
    handled = psutil.Process(run.process.pid)

    eventually(lambda: _handles_sigint(handled))
    run.family = handled.children(recursive=True)
    run.type_ctrl_c()

    run.assert_ends_cleanly()


def _handles_sigint(process):
    with open(f"/proc/{process.pid}/status") as file:
        caught = next(line for line in file if line.startswith("SigCgt"))
    # Python itself handles SIGINT from its start
    return int(caught.split()[1], 16) & (1 << (signal.SIGTERM - 1))


def test_a_killed_run_leaves_no_dashboard_and_a_readable_store(start, port):
    run = start("--port", port).wait_until_up()
    store = run.store
    eventually(lambda: dead(store) > 0, 60)

    run.process.kill()
    run.process.wait()

    eventually(lambda: not [child for child in run.family if child.is_running()])
    assert dead(store) > 0


def test_a_dashboard_that_dies_is_restarted_with_a_message(start, port):
    run = start("--port", port).wait_until_up()

    run.dashboard().kill()

    eventually(
        lambda: "Restarting the dashboard." in run.text and run.text.count("Store: ") == 2, STARTS_WITHIN
    )
    eventually(run.healthy)
    run.wait_until_up()
    run.type_ctrl_c()
    run.assert_ends_cleanly()


def test_closing_the_terminal_ends_the_run(start, port):
    run = start("--port", port).wait_until_up()

    run.process.send_signal(signal.SIGHUP)

    run.assert_ends_cleanly()


def test_a_replay_succeeds_after_the_rejections_end_and_fails_again_during_them(start, port):
    run = start("--port", port).wait_until_up()
    store = run.store
    eventually(lambda: dead(store, topic="payments") > 20, 120)
    eventually(lambda: _quiet_for(store, "payments", 5), 120)

    payments, audit = (
        replay.plan(
            store, DeadLetterFilter(topic=topic), who="test", origin="test", newer="send", inconclusive="send"
        )
        for topic in ("payments", "audit-log")
    )

    done = eventually(lambda: _ended(store, payments), 60)
    assert (done.acknowledged, done.failed_again) == (done.total, 0), done.message
    assert dead(store, topic="payments") == 0
    again = eventually(lambda: _ended(store, audit), 60)
    assert again.acknowledged == 0 < again.failed_again, again.message  # only the canary of many is sent
    assert again.failed_again + again.skipped == again.total, again.message
    run.type_ctrl_c()
    run.assert_ends_cleanly()


def _quiet_for(store, topic, seconds):
    [newest] = DeadLetters(store).find(DeadLetterFilter(topic=topic), limit=1)
    return time.time() - newest.failed_at > seconds


def _ended(store, operation):
    found = replay.get(store, operation.operation_id)
    return found if found.ended else None


def test_an_unreachable_kafka_prints_two_lines_and_exits_with_2(start, port):
    run = start("--port", port, "--bootstrap-servers", "localhost:1")

    assert run.process.wait(STARTS_WITHIN) == 2
    eventually(lambda: "No broker responded at localhost:1" in run.text)
    assert "Traceback" not in run.text


def test_a_folder_as_store_is_reported_in_one_sentence(start, port, tmp_path):
    run = start("--port", port, "--store", tmp_path)

    assert run.process.wait(STARTS_WITHIN) == 2
    eventually(lambda: "Error: " in run.text)
    assert "Traceback" not in run.text


@pytest.mark.kafka
def test_on_a_real_kafka_replayed_payments_are_on_the_topic_exactly_once(start, port, kafka):
    run = start("--port", port, "--bootstrap-servers", kafka.bootstrap_servers).wait_until_up()
    store = run.store
    assert store.path.name == "demo-127.0.0.1.duckdb"
    eventually(lambda: dead(store, topic="demo.payments") > 20, 120)
    eventually(lambda: _quiet_for(store, "demo.payments", 5), 120)
    dead_letters = DeadLetters(store).find(DeadLetterFilter(topic="demo.payments"), limit=10_000)
    assert {dead_letter.verdict for dead_letter in dead_letters} == {"not_sent"}

    operation = replay.plan(store, DeadLetterFilter(topic="demo.payments"), who="test", origin="test")

    done = eventually(lambda: _ended(store, operation), 60)
    assert done.acknowledged == len(dead_letters), done.message
    run.type_ctrl_c()
    run.assert_ends_cleanly()
    ids = _ids_on(kafka, "demo.payments")
    assert set(ids.values()) == {1}
    assert {dead_letter.message_id for dead_letter in dead_letters} <= set(ids)


def _ids_on(kafka, topic):
    """Return how often each message id is on the topic; reads to the ends, because transactions leave markers."""
    consumer = Consumer(
        {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "test", "enable.partition.eof": True}
    )
    partitions = [
        TopicPartition(topic, partition, OFFSET_BEGINNING)
        for partition in consumer.list_topics(topic, timeout=60).topics[topic].partitions
    ]
    consumer.assign(partitions)
    found, ended = Counter(), 0
    while ended < len(partitions):
        message = consumer.poll(60)
        assert message is not None
        if message.error():
            assert message.error().code() == KafkaError._PARTITION_EOF
            ended += 1
        else:
            found[id_text(record_id(message.headers()))] += 1
    consumer.close()
    return found
