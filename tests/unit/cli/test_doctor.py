"""The commands `stats` and `health` on a store, and the checks of `doctor`."""

from __future__ import annotations

import json
import os
import socket
import time

import pytest
from click.testing import CliRunner

from producer_core.alerts import AlertLog, alert, follow
from producer_core.cli import main
from producer_core.config import client_config
from producer_core.diagnostics import doctor
from producer_core.kafka.cluster import ClusterView, TopicView
from producer_core.metrics.histogram import bucket_of
from producer_core.store import Batch, LatencyRow, ProducerRow, StatisticsRow, Store


def producer_row(now, **changes):
    values = {
        "producer_id": "p1", "cluster_id": "c1", "client_id": "reliable-producer-1", "host": "here", "pid": 7,
        "version": "0.1.0", "started_at": now - 60, "seen_at": now, "closed_at": None, "connected": True,
        "connection_error": None, "pending": 5, "waiting_retry": 0, "queue_messages": 0, "queue_limit": 100000,
        "memory_bytes": 1, "memory_limit": None, "runs_replays": True, "delivery": "at_least_once", "settings": "{}",
    }  # fmt: skip
    return ProducerRow(**{**values, **changes})


def stored(path, *, now=None, dead=1, **producer):
    now = now or time.time()
    second = int(now) - 10
    statistics = (
        StatisticsRow(second, "c1", "p1", "orders", 110, 99, dead, 6, 5, 5, 3, 1, 5000, 0.99),
        StatisticsRow(second + 1, "c1", "p1", "payments", 1, 1, 0, 0, 0, 0, 0, 0, 10, 0.01),
    )
    latencies = (LatencyRow(second, "c1", "p1", "orders", bucket_of(0.010), 99),)
    Store.open(path).append(Batch("p1", 0, statistics, latencies, producer=producer_row(now, **producer)))
    return path


def run(path, *arguments):
    return CliRunner().invoke(main, [*arguments, "--store", str(path)])


def as_json(path, *arguments):
    return json.loads(run(path, *arguments, "--json").stdout)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store.duckdb"


@pytest.mark.slow
def test_stats_json_has_the_keys_of_get_stats(path):
    found = as_json(stored(path), "stats")

    assert found["messages_sent"] == 100
    assert (found["messages_failed"], found["messages_dlq"], found["messages_duplicate"]) == (6, 1, 3)
    assert found["messages_retried"] == 5
    assert found["total_bytes_sent"] == 5010
    assert found["topic_stats"]["orders"] == {"sent": 99, "failed": 6, "duplicate": 3, "retried": 5, "dlq": 1}
    assert found["pending_messages"] == 5
    assert found["error_rate"] == pytest.approx(6 / 106)
    assert found["message_error_rate"] == pytest.approx(1 / 101)
    assert found["latency_stats"]["median_ms"] == pytest.approx(10, rel=0.03)
    assert {"messages_per_second", "bytes_per_second", "elapsed_seconds", "dlq_stats"} <= found.keys()


@pytest.mark.slow
def test_stats_can_be_restricted_by_time_and_topic(path):
    stored(path)

    assert as_json(path, "stats", "--since", "1s")["messages_sent"] == 0
    assert as_json(path, "stats", "--topic", "payments")["messages_sent"] == 1


def test_stats_and_health_can_be_restricted_to_an_application_and_a_cluster(path):
    stored(path, application="checkout")

    for own in (("--application", "checkout"), ("--cluster", "c1")):
        assert as_json(path, "stats", *own)["messages_sent"] == 100
        assert as_json(path, "health", *own)["status"] == "healthy"
    for other in (("--application", "billing"), ("--application", ""), ("--cluster", "c2")):
        found = as_json(path, "stats", *other)
        assert (found["messages_sent"], found["pending_messages"], found["topic_stats"]) == (0, 0, {})
        assert as_json(path, "health", *other)["status"] == "unknown"


def test_stats_text_names_the_topics_and_the_latency(path):
    shown = run(stored(path), "stats").output

    assert "orders" in shown
    assert "p95" in shown
    assert "100 messages sent" in shown
    assert "0.99% of 101 settled messages became dead letters" in shown


def test_stats_of_an_empty_store_report_no_messages(path):
    Store.open(path)

    assert "No messages" in run(path, "stats").output
    assert as_json(path, "stats")["messages_sent"] == 0


def test_a_running_connected_producer_is_healthy(path):
    result = run(stored(path), "health")

    assert result.exit_code == 0
    assert result.output.startswith("healthy: 1 producer running")


@pytest.mark.parametrize(
    ("producer", "message"),
    [
        ({"connected": False, "connection_error": "Connection refused"}, "not connected: Connection refused"),
        ({"seen_at": time.time() - 100, "pending": 3}, "not closed; 3 messages were unsettled."),
    ],
)
def test_a_disconnected_or_silent_producer_is_unhealthy(path, producer, message):
    stored(path, **producer)

    result = run(path, "health")

    assert result.exit_code == 1
    assert result.output.startswith("unhealthy")
    assert message in result.output


def test_a_killed_producer_without_unsettled_messages_is_degraded(path):
    found = as_json(stored(path, seen_at=time.time() - 100, pending=0), "health")

    assert found["status"] == "degraded"
    assert found["issues"][0].endswith("and was not closed; no message was unsettled.")


def test_a_nearly_full_queue_is_degraded(path):
    assert as_json(stored(path, queue_messages=99_000), "health")["status"] == "degraded"


def test_many_dead_letters_are_unhealthy(path):
    found = as_json(stored(path, dead=50), "health")

    assert found["status"] == "unhealthy"
    assert found["issues"] == ["33.3% of 150 settled messages became dead letters in the last 5 minutes."]


def test_the_health_of_a_healthy_producer_names_the_topics_of_its_dead_letters(path):
    assert (
        "100 messages were acknowledged and 1 became a dead letter (1 of orders)."
        in run(stored(path), "health").output
    )


@pytest.mark.slow
def test_a_closed_producer_is_healthy(path):
    stored(path, closed_at=time.time())

    assert run(path, "health").exit_code == 0
    assert "No producer running" in run(path, "health").output


def test_a_store_without_producers_is_unknown_and_exits_with_1(path):
    Store.open(path)

    result = run(path, "health")

    assert result.exit_code == 1
    assert result.output.startswith("unknown")


@pytest.mark.slow
def test_a_firing_alert_degrades_the_health(path):
    stored(path)
    now = time.time()
    AlertLog(Store.open(path)).record(follow({}, [alert("dedup_degraded", "p1", now, reason="refused")], now))

    found = as_json(path, "health")

    assert found["status"] == "degraded"
    assert "Deduplication is unavailable" in found["issues"][0]


# doctor


def levels(findings):
    return {(finding.check.split(" ")[0], finding.level) for finding in findings}


def topic(**changes):
    values = {
        "name": "orders", "partitions": 4, "replication_factor": 3, "in_sync": 3, "leaderless": 0,
        "operations": frozenset({"ALL"}), "min_insync_replicas": 2, "max_message_bytes": 1_048_588,
    }  # fmt: skip
    return TopicView(**{**values, **changes})


@pytest.mark.parametrize(
    ("changes", "level", "message"),
    [
        (
            {},
            "ok",
            "1 broker may fail without stopping writes, and an acknowledged message survives the loss of 1 broker",
        ),
        (
            {"replication_factor": 1, "in_sync": 1, "min_insync_replicas": 1},
            "warning",
            "an acknowledged message is on only one disk",
        ),
        ({"min_insync_replicas": 3}, "warning", "writes stop as soon as one broker fails"),
        (
            {"min_insync_replicas": 1},
            "warning",
            "2 brokers may fail without stopping writes, but an acknowledged message",
        ),
        ({"in_sync": 2}, "warning", "2 of 3 replicas in sync"),
        ({"leaderless": 1}, "problem", "1 of 4 partitions has no leader"),
        ({"leaderless": 2}, "problem", "2 of 4 partitions have no leader"),
        ({"max_message_bytes": 1000}, "warning", "the broker rejects messages in between"),
        ({"operations": frozenset({"DESCRIBE"})}, "problem", "WRITE (to send)"),
        ({"operations": frozenset({"DESCRIBE", "WRITE"})}, "warning", "READ (to check"),
        (
            {"operations": frozenset({"DESCRIBE", "WRITE"})},
            "warning",
            "The check for lost acknowledged records after a leader election is disabled",
        ),
        ({"operations": None}, "ok", "does not report permissions"),
    ],
)
def test_the_topic_check_reports_its_guarantees_and_permissions(changes, level, message):
    findings = list(doctor.check_topic(topic(**changes), largest_message=1_000_000))

    assert any(finding.level == level and message in finding.text for finding in findings)
    assert all(finding.fix for finding in findings if finding.level != "ok")


@pytest.mark.parametrize(
    ("limit", "advice"), [(1000, "Set message.max.bytes=1000."), (999, "Raise the topic's")]
)
def test_the_advised_message_size_is_valid_for_a_client(limit, advice):
    (finding,) = [
        finding
        for finding in doctor.check_topic(topic(max_message_bytes=limit), largest_message=1_000_000)
        if "the broker rejects messages" in finding.text
    ]

    assert finding.fix.startswith(advice)


def test_a_single_broker_is_a_warning():
    (finding,) = doctor.check_cluster(ClusterView("c1", {1: "a:9092"}, frozenset()))

    assert finding.level == "warning"


def test_settings_that_can_lose_messages_are_a_warning():
    safe = client_config("a:9092")
    unsafe = client_config("a:9092", {"acks": "1", "enable_idempotence": False, "partitioner": "random"})

    assert levels(doctor.check_settings(safe)) == {("settings", "ok"), ("partitioner", "ok")}
    assert levels(doctor.check_settings(unsafe)) == {("settings", "warning"), ("partitioner", "warning")}


def test_the_clock_the_disk_and_java_are_checked(tmp_path):
    assert doctor.check_clock(latest=1000, now=900).level == "warning"
    assert doctor.check_clock(latest=900, now=1000).level == "ok"
    assert doctor.check_disk(tmp_path, 1 << 20).level == "problem"
    assert doctor.check_disk(tmp_path, 1 << 30).level == "warning"
    assert doctor.check_disk(tmp_path, 1 << 40).level == "ok"
    assert [doctor.check_java(version).level for version in (None, 11, 17)] == ["warning", "warning", "ok"]


def test_an_unreachable_redis_is_a_problem():
    def refuse():
        raise ConnectionRefusedError("refused")

    assert doctor.ping(refuse, OSError).level == "problem"
    assert doctor.ping(lambda: {"redis_version": "7.0"}, OSError).level == "ok"


@pytest.mark.slow
def test_the_doctor_continues_after_an_unreachable_broker(path):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        result = run(path, "doctor", "--bootstrap-servers", address, "--timeout", "1s", "--json")

    found = {finding["check"]: finding for finding in json.loads(result.stdout)["findings"]}
    assert result.exit_code == 1
    assert found[f"broker {address}"]["level"] == "problem"
    assert "No broker responded" in found["cluster"]["text"]
    assert found["store"]["level"] == "ok"


def test_an_invalid_store_file_is_a_problem(path):
    path.write_text("not a store" * 1000)

    assert ("store", "problem") in levels(doctor.check_store(path, time.time()))


def test_a_store_that_the_environment_disables_is_no_problem_for_doctor_and_an_error_for_stats(monkeypatch):
    monkeypatch.setenv("PRODUCER_CORE_STORE", "none")

    found = doctor.examine("localhost:9092", {"lingr.ms": "5"})
    stats = CliRunner().invoke(main, ["stats"])

    assert ("store", "ok") in levels(found)
    assert (stats.exit_code, "PRODUCER_CORE_STORE=none disables the store" in stats.output) == (2, True)


def test_an_invalid_setting_is_a_finding_and_other_checks_still_run(path):
    result = run(path, "doctor", "--config", "lingr.ms=5")

    assert "PROBLEM settings: Unknown setting" in result.output
    assert "java" in result.output
    assert os.linesep + "1 problem" in result.output
