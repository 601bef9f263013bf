"""The demo as users run it."""

import re
import signal
import subprocess
import sys

import pytest

from tests.support import ROOT

SCRIPT = ROOT / "scripts" / "demo_reliability_features.py"


def demo(*arguments, command=(str(SCRIPT),)):
    return subprocess.run(
        [sys.executable, *command, *arguments], capture_output=True, text=True, timeout=120, cwd=ROOT
    )


def numbers(text):
    """Return the "Name: value" lines of the output, the last of each name."""
    return dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)


def test_the_demo_runs_every_part_in_order_on_the_embedded_broker():
    result = demo("--disable-dedup")

    assert result.returncode == 0, result.stderr
    titles = [line.split(":")[0] for line in result.stdout.splitlines() if line and not line[0].isspace()]
    order = [
        titles.index(name)
        for name in ("Basic", "Deduplication", "Retry", "Health", "Batch", "Final statistics")
    ]
    assert order == sorted(order)
    assert "Redis" not in result.stdout
    found = numbers(result.stdout)
    assert (found["Sent"], found["DLQ size"]) == ("34", "1")  # 10 + 20 purchases, and 4 of the 5 with faults
    died, *alerts = result.stderr.splitlines()
    assert died.startswith("dead letter: topic=test-retry-topic, code=POLICY_VIOLATION")
    assert all(alert.startswith("ALERT [HIGH] high_error_rate: ") for alert in alerts)


def test_a_purchase_submitted_five_times_is_sent_once():
    result = demo("--demo", "deduplication", "--redis-url", "redis://:secret@localhost:1/0")

    assert result.returncode == 0
    assert "Redis: no response from localhost:1; deduplicating in memory" in result.stdout
    assert "secret" not in result.stdout + result.stderr
    assert result.stdout.count("duplicate, not sent") == 4
    found = numbers(result.stdout)
    assert (found["Total checked"], found["Duplicates found"], found["Duplicate rate"]) == (
        "5",
        "4",
        "80.00%",
    )


def test_the_retry_part_shows_two_retries_and_one_dead_letter():
    result = demo("--demo", "retry", "--disable-dedup")

    found = numbers(result.stdout)
    assert (found["DLQ size before"], found["DLQ size after"]) == ("0", "1")
    assert (found["Total retries"], found["Successful retries"], found["Failed retries"]) == ("2", "2", "0")
    assert "of test-retry-topic: Broker: Policy violation" in result.stdout


def test_the_first_health_status_has_its_timestamp():
    """It used to raise KeyError when the first check had not run yet."""
    result = demo("--demo", "health", "--disable-dedup")

    assert result.returncode == 0, result.stderr
    found = numbers(result.stdout)
    assert {"Status", "Timestamp", "Average error rate", "Average latency", "Largest DLQ", "Issues"} <= set(
        found
    )
    assert re.fullmatch(r".*[+-]\d\d:\d\d|no check yet", found["Timestamp"])


def test_the_batch_part_prints_the_result():
    found = numbers(demo("--demo", "batch", "--disable-dedup").stdout)

    assert (found["Total"], found["Failed"], found["Duplicate"]) == ("20", "0", "0")
    assert found["Message ids"].startswith("20, the first ")
    assert found["Results"] == "20, one per purchase, the first sent"


def test_the_command_prints_the_same_as_the_script():
    command = ("-m", "producer_core.cli", "demo")

    assert numbers(demo("--demo", "basic", "--disable-dedup", command=command).stdout)["Sent"] == "10"


def test_the_demo_reports_ctrl_c():
    process = subprocess.Popen(
        [sys.executable, str(SCRIPT), "--disable-dedup"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    line = process.stdout.readline()
    assert line.startswith("Broker: embedded")

    process.send_signal(signal.SIGINT)

    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Interrupted." in errors and "Traceback" not in errors


def test_an_unreachable_kafka_is_reported_in_one_sentence():
    result = demo("--kafka-servers", "localhost:1", "--disable-dedup")

    assert result.returncode == 2
    assert "No broker responded at localhost:1" in result.stderr and "Traceback" not in result.stderr


@pytest.mark.kafka
def test_the_demo_runs_every_part_on_a_real_kafka(kafka):
    result = demo("--kafka-servers", kafka.bootstrap_servers, "--disable-dedup")

    assert result.returncode == 0, result.stderr
    found = numbers(result.stdout)
    assert (found["Sent"], found["Failed"], found["DLQ size"]) == ("35", "0", "0")
    assert "No faults are injected into your Kafka" in result.stdout


@pytest.mark.redis
def test_the_demo_removes_duplicates_with_redis(redis_server):
    result = demo("--demo", "deduplication", "--redis-url", f"redis://127.0.0.1:{redis_server}/0")

    assert "no response from" not in result.stdout
    assert result.stdout.count("duplicate, not sent") == 4
