"""Health: alerts of a sample, the summary of many samples, and a monitor that reports changes and stops at once."""

from __future__ import annotations

import json
import os
import select
import signal
import threading
from datetime import datetime

import pytest

from producer_core.alerts.health import (
    DEFAULT_THRESHOLDS,
    HealthMonitor,
    default_alert_handler,
    evaluate,
    memory_usage,
)
from producer_core.producer.producer import ReliableKafkaProducer
from producer_core.testing import InMemoryTransport
from tests.support import eventually

GOOD = {
    "error_rate": 0.0,
    "avg_latency_ms": 5.0,
    "dlq_size": 0,
    "memory_usage": 0.1,
    "producer_connected": True,
}


def sample(**changes):
    return {**GOOD, **changes}


# alerts


def test_a_healthy_sample_raises_no_alert():
    assert evaluate(GOOD, DEFAULT_THRESHOLDS) == []


@pytest.mark.parametrize(
    ("key", "limit", "kind", "severity"),
    [
        ("error_rate", 0.05, "high_error_rate", "high"),
        ("dlq_size", 100, "high_dlq_size", "medium"),
        ("avg_latency_ms", 1000, "high_latency", "medium"),
        ("memory_usage", 0.8, "high_memory_usage", "high"),
    ],
)
def test_an_alert_fires_above_its_threshold_but_not_at_it(key, limit, kind, severity):
    assert evaluate(sample(**{key: limit}), DEFAULT_THRESHOLDS) == []
    assert evaluate(sample(**{key: limit * 1.01}), DEFAULT_THRESHOLDS) == [
        {"type": kind, "value": limit * 1.01, "threshold": limit, "severity": severity}
    ]


def test_alerts_are_in_a_fixed_order():
    bad = sample(error_rate=1, avg_latency_ms=1e6, dlq_size=1e6, memory_usage=1)
    kinds = [alert["type"] for alert in evaluate(bad, DEFAULT_THRESHOLDS)]
    assert kinds == ["high_error_rate", "high_dlq_size", "high_latency", "high_memory_usage"]


def test_a_missing_key_skips_its_check():
    assert evaluate({}, DEFAULT_THRESHOLDS) == []


def test_a_connection_is_lost_after_two_samples_without_it():
    gone = sample(producer_connected=False)
    assert evaluate(gone, DEFAULT_THRESHOLDS, before=GOOD) == []
    assert [alert["type"] for alert in evaluate(gone, DEFAULT_THRESHOLDS, before=gone)] == ["connection_lost"]


# the summary


def test_a_sample_counts_by_its_messages():
    idle = sample(avg_latency_ms=0.0, acknowledged_messages=0, dead_messages=0)
    failing = sample(error_rate=0.4, avg_latency_ms=300.0, acknowledged_messages=6, dead_messages=4)
    summary = monitor_with(*[idle] * 9, failing).get_health_summary()
    assert (summary["metrics"]["avg_error_rate"], summary["metrics"]["avg_latency_ms"]) == (0.4, 300.0)
    assert summary["status"] == "unhealthy"


@pytest.mark.slow
def test_a_summary_describes_the_present_and_not_the_last_interval():
    state = {"dlq_size": 0}
    monitor = HealthMonitor(check_interval_seconds=3600)
    monitor.start(lambda: sample(**state))
    try:
        assert (
            eventually(lambda: monitor.health_history) and monitor.get_health_summary()["status"] == "healthy"
        )
        state["dlq_size"] = 500
        summary = eventually(lambda: (found := monitor.get_health_summary())["issues"] and found, every=0.2)
        assert summary["issues"] == ["High DLQ size: 500"]
        checks = len(monitor.health_history)
        assert (
            monitor.get_health_summary()["checks_performed"] == checks
        )  # a check of this second is not repeated
    finally:
        monitor.stop()


def monitor_with(*samples):
    monitor = HealthMonitor()
    for one in samples:
        monitor.check(one)
    return monitor


def test_without_samples_the_status_is_unknown():
    assert HealthMonitor().get_health_summary() == {
        "status": "unknown",
        "message": "No health data available",
    }


@pytest.mark.parametrize(
    ("changes", "status", "issues"),
    [
        ({}, "healthy", []),
        ({"error_rate": 0.06}, "unhealthy", ["High error rate: 6.00%"]),
        ({"avg_latency_ms": 1200}, "degraded", ["High latency: 1200ms"]),
        ({"dlq_size": 101}, "degraded", ["High DLQ size: 101"]),
        ({"memory_usage": 0.9}, "degraded", ["High memory usage: 90%"]),
        (
            {"error_rate": 0.06, "avg_latency_ms": 1200},
            "unhealthy",
            ["High error rate: 6.00%", "High latency: 1200ms"],
        ),
    ],
)
def test_the_summary_lists_the_issues(changes, status, issues):
    summary = monitor_with(sample(**changes)).get_health_summary()
    assert (summary["status"], summary["issues"]) == (status, issues)


def test_the_summary_has_a_timestamp_from_the_first_check():
    summary = monitor_with(GOOD).get_health_summary()  # formerly a KeyError in the demo's health part
    datetime.fromisoformat(summary["timestamp"])
    assert set(summary) == {"status", "timestamp", "metrics", "issues", "thresholds", "checks_performed"}
    assert set(summary["metrics"]) == {"avg_error_rate", "avg_latency_ms", "max_dlq_size"}


def test_the_summary_covers_ten_checks_and_the_history_a_hundred():
    monitor = monitor_with(*[sample(error_rate=1.0)] * 95, *[GOOD] * 10)
    summary = monitor.get_health_summary()
    assert (summary["status"], summary["checks_performed"]) == ("healthy", 100)
    assert len(monitor.health_history) == 100


def test_thresholds_can_be_changed_but_not_through_a_summary():
    monitor = HealthMonitor()
    monitor.thresholds["dlq_size_threshold"] = 5
    monitor.check(sample(dlq_size=6))

    summary = monitor.get_health_summary()
    summary["thresholds"]["dlq_size_threshold"] = 0

    assert summary["issues"] == ["High DLQ size: 6"]
    assert monitor.thresholds["dlq_size_threshold"] == 5


@pytest.mark.parametrize("key", DEFAULT_THRESHOLDS)
@pytest.mark.parametrize(
    "remove", [lambda limits, key: limits.pop(key), lambda limits, key: limits.update({key: None})]
)
def test_a_removed_threshold_is_never_exceeded_and_the_summary_works(key, remove):
    monitor = HealthMonitor()
    remove(monitor.thresholds, key)
    monitor.check(sample(error_rate=1.0, avg_latency_ms=1e6, dlq_size=1000, memory_usage=1.0))

    summary = monitor.get_health_summary()  # formerly a KeyError

    assert len(summary["issues"]) == len(monitor.firing()) == 3


def test_an_unknown_value_skips_its_check():
    summary = monitor_with(sample(avg_latency_ms=None, memory_usage=None, dlq_size=None)).get_health_summary()
    assert (summary["status"], summary["metrics"]["avg_latency_ms"]) == ("healthy", 0.0)


# the monitor


def test_an_alert_is_reported_at_its_start_and_end_only():
    started, resolved = [], []
    monitor = HealthMonitor()
    monitor.add_alert_callback(started.append)
    monitor.add_resolved_callback(resolved.append)

    for dlq_size in (0, 101, 102, 103, 0, 0, 200):
        monitor.check(sample(dlq_size=dlq_size))

    assert [alert["value"] for alert in started] == [101, 200]
    assert [alert["value"] for alert in resolved] == [103]
    assert [alert["type"] for alert in monitor.firing()] == ["high_dlq_size"]


def test_an_alert_has_exactly_the_documented_keys():
    alerts = []
    monitor = HealthMonitor()
    monitor.add_alert_callback(alerts.append)
    monitor.check(sample(error_rate=0.5))
    assert alerts == [{"type": "high_error_rate", "value": 0.5, "threshold": 0.05, "severity": "high"}]


def test_a_callback_that_fails_or_changes_its_alert_does_not_affect_the_next(caplog):
    alerts = []
    monitor = HealthMonitor()
    monitor.add_alert_callback(lambda alert: alert.clear())
    monitor.add_alert_callback(lambda alert: 1 / 0)
    monitor.add_alert_callback(alerts.append)
    monitor.check(sample(error_rate=0.5))
    assert alerts[0]["type"] == "high_error_rate"
    assert "alert callback failed" in caplog.text


def test_the_first_check_runs_immediately():
    monitor = HealthMonitor(check_interval_seconds=3600)
    monitor.start(lambda: GOOD)
    eventually(lambda: monitor.get_health_summary()["status"] == "healthy")
    monitor.stop()


def test_stop_does_not_wait_for_the_interval():
    monitor = HealthMonitor(check_interval_seconds=30)
    monitor.start(lambda: GOOD)
    eventually(lambda: monitor.health_history)

    monitor.stop()  # formerly waited five seconds and left the thread running

    assert not any(thread.name == "producer-core-health" for thread in threading.enumerate())


def test_a_failed_sample_is_logged_and_the_next_is_taken(caplog):
    answers = iter([ZeroDivisionError("boom"), GOOD])

    def take():
        answer = next(answers, GOOD)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monitor = HealthMonitor(check_interval_seconds=0.01)
    monitor.start(take)
    eventually(lambda: monitor.health_history)
    monitor.stop()
    assert "health check failed" in caplog.text


def test_a_summary_right_after_the_start_is_complete():
    for _ in range(20):
        monitor = HealthMonitor(check_interval_seconds=3600)
        monitor.start(lambda: GOOD)
        assert "timestamp" in monitor.get_health_summary()
        monitor.stop()


def test_a_new_producer_reports_its_health_and_its_connection():
    with ReliableKafkaProducer("memory:1", store=None, transport=InMemoryTransport.factory()) as producer:
        assert producer.get_health_status()["timestamp"]
        assert producer.health_monitor.health_history[-1]["producer_connected"]  # formerly always False


# the default handler and memory usage


def test_the_default_handler_logs_one_warning(caplog):
    default_alert_handler({"type": "high_error_rate", "value": 0.5, "threshold": 0.05, "severity": "high"})
    assert caplog.messages == ["ALERT [HIGH] high_error_rate: 0.5 exceeds threshold 0.05"]


def test_the_default_handler_reads_missing_keys_as_unknown(caplog):
    default_alert_handler({})
    assert caplog.messages == ["ALERT [UNKNOWN] unknown: unknown exceeds threshold unknown"]


def test_a_lost_connection_is_logged_with_its_reason_and_its_end(caplog):
    reason = "kafka-1:9092/bootstrap: Connect to ipv4#10.0.0.1:9092 failed: Connection refused"
    unreachable = [reason]
    monitor = HealthMonitor(check_interval_seconds=3600)
    monitor.add_alert_callback(default_alert_handler)
    monitor.start(lambda: sample(producer_connected=False), unreachable=lambda: unreachable[0])
    eventually(lambda: monitor.firing())
    monitor.stop()

    unreachable[0] = None
    monitor.check(GOOD)

    lines = [record.getMessage() for record in caplog.records if record.name.startswith("producer_core")]
    assert len(lines) == 2
    assert lines[0].endswith(reason)
    assert lines[1] == "RESOLVED: A broker is connected again"


def test_memory_usage_is_measured():
    used, limit = memory_usage()
    assert 1_000_000 < used < limit


MACHINE = {"proc/self/statm": "9 2 1 1 0 1 0", "proc/meminfo": "MemTotal:       1000 kB\nMemFree: 1 kB\n"}


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({}, 1_024_000),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"}, 1_024_000),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "5000\n"}, 5000),  # a container
        (
            {  # a systemd service with MemoryMax: the limit is in its own group, not in the root group
                "proc/self/cgroup": "0::/system.slice/producer.service\n",
                "sys/fs/cgroup/system.slice/memory.max": "max\n",
                "sys/fs/cgroup/system.slice/producer.service/memory.max": "7000\n",
            },
            7000,
        ),
        (
            {  # the lowest limit of nested groups
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/memory.max": "3000\n",
                "sys/fs/cgroup/a/b/memory.max": "7000\n",
            },
            3000,
        ),
        (
            {  # cgroup v1, in a container that sees the host's path
                "proc/self/cgroup": "3:cpu,cpuacct:/docker/x\n4:memory:/docker/x\n0::/docker/x\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "6000\n",
            },
            6000,
        ),
        (
            {  # cgroup v1 writes a huge number for no limit
                "proc/self/cgroup": "4:memory:/\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            },
            1_024_000,
        ),
    ],
)
def test_the_memory_limit_is_the_lowest_that_applies_to_this_process(tmp_path, files, limit):
    for name, text in {**MACHINE, **files}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert memory_usage(tmp_path) == (2 * os.sysconf("SC_PAGE_SIZE"), limit)


def test_the_memory_limit_is_unknown_if_nothing_can_be_read(tmp_path):
    assert memory_usage(tmp_path) == (0, None)


# forks


def _in_child(work):
    """Return what `work` returns in a forked child, as text. A child that hangs is killed."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(write, json.dumps(work()).encode())
        finally:
            os._exit(0)
    os.close(write)
    try:
        ready, _, _ = select.select([read], [], [], 30)
        assert ready, "the child hangs"
        return json.loads(os.read(read, 65536))
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(read)


def test_a_forked_child_reports_the_producer_of_its_parent_as_unhealthy():
    """Regression: the child said `healthy`, although each send in it raises ForkedProducer."""
    with ReliableKafkaProducer("memory:1", store=None, transport=InMemoryTransport.factory()) as producer:
        before = producer.get_health_status()

        found = _in_child(producer.get_health_status)

        assert (found["status"], found["checks_performed"]) == ("unhealthy", 0)
        assert found["issues"] == [
            "This producer belongs to the parent process. Create one in the child, after the fork."
        ]
        assert found.keys() == before.keys()
        assert producer.get_health_status()["status"] == before["status"] == "healthy"


def test_a_fork_during_a_check_leaves_a_child_that_does_not_wait_for_it():
    checking, finish = threading.Event(), threading.Event()

    def slow_sample():
        checking.set()
        finish.wait(60)
        return GOOD

    monitor = HealthMonitor()
    monitor.start(slow_sample)
    try:
        assert checking.wait(30)
        assert _in_child(monitor.get_health_summary)["status"] == "unhealthy"
    finally:
        finish.set()
        monitor.stop()
