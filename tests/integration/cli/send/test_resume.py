"""A `send` that is killed and restarted: exactly_once delivers each row once and in order, at_least_once bounds duplicates."""

from __future__ import annotations

import collections
import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
from dataclasses import replace

import pytest
from confluent_kafka import Producer

from producer_core.cli.send.state_file import decode, encode
from producer_core.delivery.journal.ranges import Ranges
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.store import Store
from tests.support import eventually

pytestmark = pytest.mark.kafka

ROWS = 20_000
FEW = 4_000
MANY = 200_000
KEYS = 97
SLOWLY = ("-X", "batch.num.messages=20", "-X", "max.in.flight.requests.per.connection=1")
"""Slow enough that a kill arrives before the end."""
EAGER_COMPACTION = {
    "cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.001",
    "max.compaction.lag.ms": "100",
}  # fmt: skip
SEED = int(os.environ.get("SEND_SEED", "0")) or random.SystemRandom().randrange(1, 2**31)


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("PRODUCER_CORE_STORE", raising=False)
    return tmp_path / "state" / "producer-core" / "sends"


@pytest.fixture
def topic(kafka, request):
    name = f"send-{re.sub('[^a-z]', '-', request.node.name)[:60]}-{os.getpid()}"
    kafka.create_topic(name, partitions=4)
    return name


@pytest.fixture
def file(tmp_path):
    return written(tmp_path / "rows.csv", ROWS)


@pytest.fixture
def short(tmp_path):
    return written(tmp_path / "few.csv", FEW)


def written(path, count):
    with path.open("w") as out:
        out.write("n,customer\n")
        out.writelines(f"{n},c{n % KEYS}\n" for n in range(count))
    return path


def command(kafka, topic, file, *more):
    return [
        sys.executable, "-m", "producer_core.cli", "send", topic, str(file), "--key", "customer", "--json",
        "--no-store", "-b", kafka.bootstrap_servers, *more,
    ]  # fmt: skip


@contextlib.contextmanager
def started(*arguments):
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def run(kafka, topic, file, *more, code=0):
    done = subprocess.run(
        command(kafka, topic, file, *more), capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout) if done.stdout else None, done.stderr


def on_topic(kafka, topic):
    """Return the number of records on the topic, transaction markers included, from its offsets only."""
    listing = subprocess.run(
        ["kcat", "-Q", "-b", kafka.bootstrap_servers, *(f"-t{topic}:{number}:-1" for number in range(4))],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    ends = [line.rsplit(" ", 1)[1] for line in listing.stdout.splitlines() if " offset " in line]
    return sum(int(end) for end in ends if end.isdigit())  # a topic may have fewer partitions


def stopped_when(kafka, topic, arguments, count, number=signal.SIGKILL):
    """Start the command, and send the signal once `count` more records are on the topic. Return its exit and output."""
    before = on_topic(kafka, topic)
    with started(*arguments) as process:
        eventually(
            lambda: process.poll() is not None or on_topic(kafka, topic) >= before + count, 60, every=0.005
        )
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
        return process.returncode, out, err


def killed_and_resumed(kafka, topic, file, *more, kills=6):
    """Kill the command at random points, then let it end. Return its summary and the kills that came before the end."""
    generator = random.Random(SEED)
    print(f"SEND_SEED={SEED}")
    for hit in range(kills):
        code, out, err = stopped_when(
            kafka, topic, command(kafka, topic, file, *SLOWLY, *more), generator.randrange(1, 3500)
        )
        if code != -signal.SIGKILL:
            assert code == 0, err
            return json.loads(out), hit
    summary, _ = run(kafka, topic, file, *SLOWLY, *more)
    return summary, kills


def rows(kafka, topic):
    """Return (partition, row) of every record as kcat reads it with read_committed, in the order of each partition."""
    listing = subprocess.run(
        ["kcat", "-C", "-b", kafka.bootstrap_servers, "-t", topic, "-o", "beginning", "-e", "-q",
         "-X", "isolation.level=read_committed", "-f", "%p %s\n"],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    found = [line.split(" ", 1) for line in listing.stdout.splitlines()]
    return [(int(partition), json.loads(value)["n"]) for partition, value in found]


def write(kafka, topic, rows):
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for key, n in rows.items():
        producer.produce(topic, json.dumps({"n": n}), key)
    assert producer.flush(20) == 0


def records(kafka, topic):
    """Return the keys and rows on the topic, in the order of its only partition."""
    listing = subprocess.run(
        ["kcat", "-C", "-b", kafka.bootstrap_servers, "-t", topic, "-o", "beginning", "-e", "-q", "-f", "%k %s\n"],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    found = [line.split(" ", 1) for line in listing.stdout.splitlines()]
    return [(key, json.loads(value)["n"]) for key, value in found]


def is_compacted(kafka, topic, key, n):
    """Add a record, because the cleaner skips the newest segment. Return whether the cleaner has removed this one."""
    write(kafka, topic, {"filler": 0})
    return (key, n) not in records(kafka, topic)


def order_breaks(found):
    """Count the rows that follow a later row of the same key; every KEYS-th row has the same key."""
    last, breaks = {}, 0
    for _, row in found:
        breaks += row < last.get(row % KEYS, -1)
        last[row % KEYS] = max(row, last.get(row % KEYS, -1))
    return breaks


def test_exactly_once_delivers_each_row_once_and_in_order_through_random_kills(kafka, topic, file):
    summary, hits = killed_and_resumed(kafka, topic, file, "--delivery", "exactly_once")

    found = rows(kafka, topic)
    assert hits
    assert collections.Counter(row for _, row in found) == collections.Counter(range(ROWS))
    assert order_breaks(found) == 0
    assert summary["complete"]
    assert summary["possible_duplicates"] == 0


def test_at_least_once_reports_an_upper_bound_of_the_duplicates(kafka, topic, file):
    summary, hits = killed_and_resumed(kafka, topic, file, kills=4)

    counts = collections.Counter(row for _, row in rows(kafka, topic))
    assert hits
    assert set(counts) == set(range(ROWS))
    # before a run sends rows, it saves the last position that it may reach
    assert sum(counts.values()) - ROWS <= summary["possible_duplicates"] <= 3 * hits * ROWS


def test_a_lost_state_file_is_recovered_from_the_topic(kafka, topic, short, state):
    exactly_once = ("--delivery", "exactly_once", *SLOWLY)
    code, _, err = stopped_when(kafka, topic, command(kafka, topic, short, *exactly_once), 1000)
    assert code == -signal.SIGKILL, err
    (lost,) = state.glob("*.state")
    lost.unlink()

    summary, err = run(kafka, topic, short, *exactly_once)

    assert f"Searching {topic} from its start" in err
    assert summary["already_done"] > 0
    assert collections.Counter(row for _, row in rows(kafka, topic)) == collections.Counter(range(FEW))
    again, err = run(kafka, topic, short, *exactly_once)
    assert (again["acknowledged"], again["complete"]) == (0, True)
    assert "there is nothing to send" in err


@pytest.mark.parametrize("further", ["killed", "complete"])
@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_an_old_copy_of_the_state_loses_no_row(kafka, topic, short, state, delivery, further):
    options = ("--delivery", delivery, *SLOWLY)
    code, _, err = stopped_when(kafka, topic, command(kafka, topic, short, *options), 500)
    assert code == -signal.SIGKILL, err
    (path,) = state.glob("*.state")
    old = path.read_bytes()
    if further == "complete":
        run(kafka, topic, short, *options)
    else:
        code, _, err = stopped_when(kafka, topic, command(kafka, topic, short, *options), 500)
        assert code in (-signal.SIGKILL, 0), err  # it may end before the kill
    path.write_bytes(old)

    summary, err = run(kafka, topic, short, *options)

    counts = collections.Counter(row for _, row in rows(kafka, topic))
    assert set(counts) == set(range(FEW))
    assert summary["complete"]
    assert counts.total() - FEW <= summary["possible_duplicates"], err
    if delivery == "exactly_once":
        assert counts.total() == FEW
    elif further == "complete":
        assert summary["acknowledged"] == 0, "every row was on the topic"


def test_a_compacted_row_whose_key_has_a_newer_record_is_held_back(kafka, tmp_path, state):
    """Row 150 reached the topic before a crash. Another producer then wrote its key, and the cleaner removed the row."""
    topic, reached = f"send-compacted-{os.getpid()}", ROWS // 2
    kafka.create_topic(topic, partitions=1, config=EAGER_COMPACTION)
    file = tmp_path / "rows.csv"
    file.write_text("n,customer\n" + "".join(f"{n},k{n}\n" for n in range(ROWS)))
    code, _, err = stopped_when(kafka, topic, command(kafka, topic, file, *SLOWLY), 500)
    assert code == -signal.SIGKILL, err
    (path,) = state.glob("*.state")
    before = decode(path.read_bytes())
    start = {(topic, 0): -1}
    path.write_bytes(encode(replace(before, settled=Ranges([(0, 100)]), reached=reached, offsets=start)))
    write(kafka, topic, {"k150": -1, f"k{reached + 1}": -2})
    eventually(lambda: is_compacted(kafka, topic, "k150", 150), 40, every=0.3)

    summary, _ = run(kafka, topic, file, code=1)

    newest = dict(records(kafka, topic))
    assert newest.pop("k150") == -1
    newest.pop("filler")
    # no earlier run can have sent the row of k10001, so the file's value is the newer one
    assert newest == {f"k{n}": n for n in range(ROWS) if n != 150}
    assert (summary["dead"], summary["complete"]) == (1, True)


def test_an_interrupt_prints_the_resume_command_and_a_changed_file_is_refused(kafka, topic, tmp_path):
    many = written(tmp_path / "many.csv", MANY)
    exactly_once = ("--delivery", "exactly_once", *SLOWLY)

    code, out, err = stopped_when(
        kafka, topic, command(kafka, topic, many, "--restart", *exactly_once), 500, signal.SIGINT
    )
    assert code == 130, err
    summary = json.loads(out)
    assert "--delivery exactly_once" in summary["go_on"]
    assert "--restart" not in summary["go_on"]
    assert summary["accepted"] == summary["acknowledged"] > 0

    with many.open("a") as out:
        out.write(f"{MANY},c1\n")
    _, err = run(kafka, topic, many, *exactly_once, code=2)
    assert "has changed since the send started" in err
    assert "--restart" in err
    assert len(rows(kafka, topic)) == summary["acknowledged"]


def test_only_one_process_at_a_time_sends_a_file(kafka, topic, file):
    slow = command(kafka, topic, file, "--delivery", "exactly_once", *SLOWLY)
    with started(*slow) as process:
        eventually(lambda: on_topic(kafka, topic) > 0, 60)
        process.send_signal(signal.SIGSTOP)  # otherwise it may end before the other begins

        _, err = run(kafka, topic, file, "--delivery", "exactly_once", *SLOWLY, code=2)

        assert f"Process {process.pid} is already sending this file" in err


def test_a_send_of_the_same_file_from_another_host_fences_the_first(
    kafka, topic, file, tmp_path, monkeypatch
):
    exactly_once = ("--delivery", "exactly_once", *SLOWLY)
    with started(*command(kafka, topic, file, *exactly_once)) as first:
        eventually(lambda: on_topic(kafka, topic) > 0, 60)
        first.send_signal(signal.SIGSTOP)
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))

        summary, _ = run(kafka, topic, file, *exactly_once)
        first.send_signal(signal.SIGCONT)
        out, err = first.communicate(timeout=90)

    print(first.returncode, out, err)
    assert summary["complete"]
    # 2: the broker fenced its transactional id. 0: its connection had broken, so it initialized again and found all rows.
    assert first.returncode in (0, 2), err
    assert first.returncode == 0 or "Another process is using the transactional id" in err
    assert collections.Counter(row for _, row in rows(kafka, topic)) == collections.Counter(range(ROWS))


def test_rejected_and_malformed_rows_become_dead_letters_once(kafka, tmp_path):
    topic = f"send-small-{os.getpid()}"
    kafka.create_topic(topic, partitions=1, config={"max.message.bytes": "2000"})
    file = tmp_path / "rows.jsonl"
    lines = [f'{{"n": {n}}}' for n in range(300)]
    lines[100], lines[200] = (
        json.dumps({"n": 100, "text": random.Random(SEED).randbytes(4000).hex()}),
        "not json",
    )
    file.write_text("\n".join(lines))
    arguments = [
        sys.executable, "-m", "producer_core.cli", "send", topic, str(file), "--delivery", "exactly_once", "--json",
        "-b", kafka.bootstrap_servers, "--store", str(tmp_path / "store.duckdb"),
    ]  # fmt: skip

    first = subprocess.run(arguments, capture_output=True, text=True, timeout=120, check=False)
    again = subprocess.run(arguments, capture_output=True, text=True, timeout=120, check=False)

    assert first.returncode == again.returncode == 1, first.stderr
    summary = json.loads(first.stdout)
    assert [summary[name] for name in ("acknowledged", "dead", "malformed", "complete")] == [298, 1, 1, True]
    summary = json.loads(again.stdout)
    assert [summary[name] for name in ("acknowledged", "dead_before", "malformed_before")] == [0, 1, 1]
    dead_letters = DeadLetters(Store.open(tmp_path / "store.duckdb")).find(DeadLetterFilter())
    assert sorted((one.code, one.verdict) for one in dead_letters) == [
        ("MSG_SIZE_TOO_LARGE", "rejected"),
        ("malformed", "not_sent"),
    ]
    assert len(rows(kafka, topic)) == 298
