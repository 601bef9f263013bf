"""The delivery guarantees on a real Kafka, with producers killed at random points, counted by kcat."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import uuid
from collections import Counter

import pytest

pytestmark = pytest.mark.kafka


@pytest.fixture
def topic(kafka):
    name = f"orders-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(name, partitions=3)
    return name


def start_child(kafka, topic, folder, delivery, first, count):
    arguments = (
        kafka.bootstrap_servers,
        topic,
        folder / "journal",
        folder / "s.duckdb",
        delivery,
        first,
        count,
    )
    with (folder / "errors").open("a") as errors:
        command = [sys.executable, "-m", "tests.processes.guarantee", *map(str, arguments)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)


def run_killed(process, after):
    """Kill the process after `after` accepted messages. Return the lines that it printed until then."""
    lines = [process.stdout.readline() for _ in range(after)]
    process.kill()
    lines += process.stdout.read().splitlines(keepends=True)
    process.wait()
    process.stdout.close()
    return [line.split() for line in lines if line.endswith("\n")]


def read_topic(kcat, kafka, topic):
    """Yield (partition, key, number) of every record that a read_committed consumer reads, by kcat."""
    end = b"|end of the record|"  # an id may contain any byte, including a line break
    record_format = r"%p|%k|%s|%h" + end.decode()
    command = [
        kcat, "-C", "-b", kafka.bootstrap_servers, "-t", topic, "-e", "-q", "-o", "beginning", "-f", record_format,
        "-X", "isolation.level=read_committed",
    ]  # fmt: skip
    read = subprocess.run(command, capture_output=True, timeout=120, check=True).stdout
    for line in read.split(end):
        if line:
            partition, key, number, _ = line.split(b"|", 3)
            yield int(partition), key.decode(), int(number)


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_a_producer_that_is_killed_repeatedly_loses_no_message(kafka, kcat, topic, tmp_path, delivery):
    rng, accepted, first = random.Random(4), set(), 0
    for _ in range(4):
        process = start_child(kafka, topic, tmp_path, delivery, first, 1_000_000)
        lines = run_killed(process, rng.randrange(200, 3000))
        numbers = [int(line[0]) for line in lines]
        accepted |= set(numbers)
        first = max(numbers) // 5 * 5 + 10  # a new number, whatever the outcome of the message being sent
    last = start_child(kafka, topic, tmp_path, delivery, first, 500)
    output, _ = last.communicate(timeout=180)
    assert last.returncode == 0, (tmp_path / "errors").read_text()
    *lines, closed = output.split("\n")[:-1]
    accepted |= {int(line.split()[0]) for line in lines}

    records = list(read_topic(kcat, kafka, topic))
    copies = Counter(number for _, _, number in records)
    assert closed.split()[2:] == ["0", "0", "0"]
    assert accepted - set(copies) == set()
    if delivery == "exactly_once":
        assert [number for number, times in copies.items() if times > 1] == []
    for key in {key for _, key, _ in records}:
        first_copies = list(dict.fromkeys(number for _, one, number in records if one == key))
        assert first_copies == sorted(first_copies), key


def test_exactly_once_reports_dead_letters_and_callbacks_like_at_least_once(kafka, kcat, topic, tmp_path):
    from producer_core import ReliableKafkaProducer

    reports, lock = [], threading.Lock()

    def on_delivery(report):
        with lock:
            reports.append(report)

    with ReliableKafkaProducer(
        kafka.bootstrap_servers, {"max_request_size": 4_000_000}, store=tmp_path / "s.duckdb",
        journal_dir=tmp_path / "j", delivery="exactly_once",
    ) as producer:  # fmt: skip
        for number in range(200):
            value = os.urandom(2_000_000) if number == 100 else b"%d" % number
            producer.send_message(
                topic, value, f"key-{number % 5}", record_id=number, on_delivery=on_delivery
            )
        producer.flush(120)
        assert len(producer.get_dlq_messages()) == 1
    report = producer.close()

    assert (report.acknowledged, report.dead, report.journaled, report.lost) == (199, 1, 0, 0)
    assert sorted(one.record_id for one in reports) == list(range(200))
    assert [(one.record_id, one.verdict) for one in reports if one.error] == [(100, "rejected")]
    assert len(list(read_topic(kcat, kafka, topic))) == 199
