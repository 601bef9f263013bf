"""A `send` that is killed and started again: each row once for a read_committed reader, in order, or so many twice."""

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

import pytest

from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.store import Store
from tests.support import eventually

pytestmark = pytest.mark.kafka

ROWS = 20_000
FEW = 4_000
MANY = 200_000
KEYS = 97
SLOWLY = ("-X", "batch.num.messages=20", "-X", "max.in.flight.requests.per.connection=1")
"""So that a kill comes before the end."""
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
    """How many records the topic holds, markers of transactions included; cheap."""
    listing = subprocess.run(
        ["kcat", "-Q", "-b", kafka.bootstrap_servers, *(f"-t{topic}:{number}:-1" for number in range(4))],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    return sum(int(line.rsplit(" ", 1)[1]) for line in listing.stdout.splitlines() if " offset " in line)


def stopped_when(kafka, topic, arguments, count, number=signal.SIGKILL):
    """Start, and send the signal once so many more records are on the topic; how it ended, and what it said."""
    before = on_topic(kafka, topic)
    with started(*arguments) as process:
        eventually(
            lambda: process.poll() is not None or on_topic(kafka, topic) >= before + count, 60, every=0.005
        )
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
        return process.returncode, out, err


def killed_and_resumed(kafka, topic, file, *more, kills=6):
    """Kill it at random points, then let it end; its summary, and how often a kill came before the end."""
    chance = random.Random(SEED)
    print(f"SEND_SEED={SEED}")
    for hit in range(kills):
        code, out, err = stopped_when(
            kafka, topic, command(kafka, topic, file, *SLOWLY, *more), chance.randrange(1, 3500)
        )
        if code != -signal.SIGKILL:
            assert code == 0, err
            return json.loads(out), hit
    summary, _ = run(kafka, topic, file, *SLOWLY, *more)
    return summary, kills


def rows(kafka, topic):
    """(partition, row) of every record as kcat reads it, read_committed, in the order of each partition."""
    listing = subprocess.run(
        ["kcat", "-C", "-b", kafka.bootstrap_servers, "-t", topic, "-o", "beginning", "-e", "-q",
         "-X", "isolation.level=read_committed", "-f", "%p %s\n"],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    found = [line.split(" ", 1) for line in listing.stdout.splitlines()]
    return [(int(partition), json.loads(value)["n"]) for partition, value in found]


def order_breaks(found):
    """Rows that a reader of their key meets after a later one; a key is one row in KEYS."""
    last, breaks = {}, 0
    for _, row in found:
        breaks += row < last.get(row % KEYS, -1)
        last[row % KEYS] = max(row, last.get(row % KEYS, -1))
    return breaks


def test_killed_at_random_and_started_again_each_row_is_there_once_in_order(kafka, topic, file):
    summary, hits = killed_and_resumed(kafka, topic, file, "--delivery", "exactly_once")

    found = rows(kafka, topic)
    assert hits
    assert collections.Counter(row for _, row in found) == collections.Counter(range(ROWS))
    assert order_breaks(found) == 0
    assert summary["complete"]
    assert summary["possible_duplicates"] == 0


def test_at_least_once_says_how_many_rows_may_be_there_twice(kafka, topic, file):
    summary, hits = killed_and_resumed(kafka, topic, file, kills=4)

    counts = collections.Counter(row for _, row in rows(kafka, topic))
    assert hits
    assert set(counts) == set(range(ROWS))
    assert (
        sum(counts.values()) - ROWS <= summary["possible_duplicates"] <= 3 * hits * ROWS
    )  # it reaches ahead


def test_a_lost_state_file_is_made_up_for_by_reading_the_topic(kafka, topic, short, state):
    exactly = ("--delivery", "exactly_once", *SLOWLY)
    code, _, err = stopped_when(kafka, topic, command(kafka, topic, short, *exactly), 1000)
    assert code == -signal.SIGKILL, err
    (lost,) = state.glob("*.state")
    lost.unlink()

    summary, said = run(kafka, topic, short, *exactly)

    assert "is read from its start" in said
    assert summary["already_done"] > 0
    assert collections.Counter(row for _, row in rows(kafka, topic)) == collections.Counter(range(FEW))
    again, said = run(kafka, topic, short, *exactly)
    assert (again["acknowledged"], again["complete"]) == (0, True)
    assert "nothing is sent now" in said


def test_an_interrupt_names_the_command_that_goes_on_and_a_changed_file_is_refused(kafka, topic, tmp_path):
    many = written(tmp_path / "many.csv", MANY)
    exactly = ("--delivery", "exactly_once", *SLOWLY)

    code, out, err = stopped_when(
        kafka, topic, command(kafka, topic, many, "--restart", *exactly), 500, signal.SIGINT
    )
    assert code == 130, err
    summary = json.loads(out)
    assert "--delivery exactly_once" in summary["go_on"]
    assert "--restart" not in summary["go_on"]
    assert summary["accepted"] == summary["acknowledged"] > 0

    with many.open("a") as out:
        out.write(f"{MANY},c1\n")
    _, err = run(kafka, topic, many, *exactly, code=2)
    assert "is not the file that was begun with" in err
    assert "--restart" in err
    assert len(rows(kafka, topic)) == summary["acknowledged"]


def test_the_same_file_is_sent_by_one_process_at_a_time(kafka, topic, file):
    slow = command(kafka, topic, file, "--delivery", "exactly_once", *SLOWLY)
    with started(*slow) as process:
        eventually(lambda: on_topic(kafka, topic) > 0, 60)
        process.send_signal(signal.SIGSTOP)  # else it may have ended before the other begins

        _, err = run(kafka, topic, file, "--delivery", "exactly_once", *SLOWLY, code=2)

        assert f"by process {process.pid}" in err


def test_another_host_that_sends_the_same_file_takes_over(kafka, topic, file, tmp_path, monkeypatch):
    exactly = ("--delivery", "exactly_once", *SLOWLY)
    with started(*command(kafka, topic, file, *exactly)) as first:
        eventually(lambda: on_topic(kafka, topic) > 0, 60)
        first.send_signal(signal.SIGSTOP)
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))

        summary, _ = run(kafka, topic, file, *exactly)
        first.send_signal(signal.SIGCONT)
        out, err = first.communicate(timeout=90)

    print(first.returncode, out, err)
    assert summary["complete"]
    # 2: it was told that another process uses its id; 0: its connection had broken, so it began anew, and found all
    assert first.returncode in (0, 2), err
    assert first.returncode == 0 or "Another process uses the transactional id" in err
    assert collections.Counter(row for _, row in rows(kafka, topic)) == collections.Counter(range(ROWS))


def test_what_is_refused_and_what_is_malformed_is_done_and_dead_once(kafka, tmp_path):
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
