"""A real Prometheus scrapes a process and a store; promtool and the other readers of the same numbers agree."""

from __future__ import annotations

import json
import subprocess
import time
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from producer_core import ReliableKafkaProducer, RetryConfig
from producer_core.alerts import AlertChange, AlertLog, alert
from producer_core.brokers import embedded
from producer_core.cli import main
from producer_core.dashboard import queries
from producer_core.producer.prometheus.definitions import METRICS
from producer_core.prometheus import start_metrics_server
from producer_core.store import Store
from tests.fixtures.monitoring import get, metrics_serve, prometheus

pytestmark = pytest.mark.prometheus

TOPIC = "messaging_destination_name"
SENT = "messaging_client_sent_messages_total"
DEAD = "producer_core_dead_letters_total"
FAILED = "producer_core_failed_attempts_total"
RETRIED = "producer_core_retries_total"
DUPLICATES = "producer_core_duplicates_suppressed_total"
BYTES = "producer_core_sent_bytes_total"


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """A producer with every outcome of a message, closed; its two endpoints; and a Prometheus that scraped both."""
    folder = tmp_path_factory.mktemp("scrape")
    path = folder / "store.duckdb"
    with (
        embedded.start(brokers=1, topics=dict.fromkeys(("orders", "refunds", "invoices"), 2)) as broker,
        ReliableKafkaProducer(
            broker.bootstrap_servers,
            store=path,
            enable_deduplication=True,
            retry_config=RetryConfig(max_retries=1, initial_delay_ms=1, max_delay_ms=2),
        ) as producer,
        start_metrics_server(0, producer) as server,
        metrics_serve(path) as url,
        prometheus(folder / "prometheus", {"process": server.url, "store": url}) as found,
    ):
        for number in range(60):
            producer.send_message(("orders", "invoices")[number % 3 == 0], {"n": number})
        producer.flush()
        producer.send_message("orders", {"n": 1})  # a duplicate
        broker.reject("refunds")
        for number in range(7):
            producer.send_message("refunds", {"n": number})
        producer.flush()
        producer.close()
        fenced = alert("fenced", "p-1", time.time(), text="for the test")
        AlertLog(Store.open(path, create=False)).record([AlertChange("fired", fenced)])
        found.wait_for_scrape("process")
        found.wait_for_scrape("store")
        yield SimpleNamespace(prometheus=found, path=path, urls={"process": server.url, "store": url})


@pytest.mark.parametrize("source", ["process", "store"])
def test_promtool_accepts_the_metrics(shop, promtool, source):
    found = subprocess.run(
        [promtool, "check", "metrics"], input=get(shop.urls[source]), capture_output=True, text=True
    )

    assert (found.returncode, found.stdout + found.stderr) == (0, "")


@pytest.mark.parametrize("source", ["process", "store"])
def test_prometheus_stores_every_metric_of_the_source(shop, source):
    stored = shop.prometheus.by("__name__", f'count by (__name__) ({{job="{source}"}})')

    suffixes = {"histogram": ("_bucket", "_sum", "_count"), "summary": ("_sum", "_count")}
    expected = {
        name + suffix
        for name, definition in METRICS.items()
        if source in definition.sources
        for suffix in suffixes.get(definition.type, ("",))
    }
    optional = {
        "producer_core_journal_messages", "producer_core_journal_bytes",  # a running producer with a journal
        "producer_core_deduplication_degraded", "producer_core_application_producers",  # a running producer
        "producer_core_circuits", "producer_core_refused_messages_total", "producer_core_circuit_openings_total",
        "producer_core_stored_dead_letters",  # in the process, a producer without a store
    }  # fmt: skip
    assert expected - optional <= stored.keys()


def test_prometheus_the_store_and_the_dashboard_have_the_same_numbers(shop):
    stats = json.loads(CliRunner().invoke(main, ["stats", "--json", "--store", str(shop.path)]).output)
    page = queries.overview(Store.open(shop.path, create=False), "15 min", time.time())

    dashboard = page.sums
    assert (dashboard.acknowledged, dashboard.dead, dashboard.duplicates) == (60, 7, 1)
    for job in ("process", "store"):
        counted = {
            name: int(shop.prometheus.value(f'sum({name}{{job="{job}"}})'))
            for name in (SENT, DEAD, FAILED, RETRIED, DUPLICATES, BYTES)
        }
        assert counted == {
            SENT: stats["messages_sent"],
            DEAD: stats["messages_dlq"],
            FAILED: stats["messages_failed"],
            RETRIED: stats["messages_retried"],
            DUPLICATES: stats["messages_duplicate"],
            BYTES: stats["total_bytes_sent"],
        }
        assert (counted[SENT], counted[DEAD], counted[RETRIED], counted[DUPLICATES]) == (
            dashboard.acknowledged,
            dashboard.dead,
            dashboard.retried,
            dashboard.duplicates,
        )


def test_the_numbers_of_each_topic_agree(shop):
    stats = json.loads(CliRunner().invoke(main, ["stats", "--json", "--store", str(shop.path)]).output)
    page = queries.overview(Store.open(shop.path, create=False), "15 min", time.time())

    sent = {"orders": 40, "invoices": 20, "refunds": 0}
    dead = {"orders": 0, "invoices": 0, "refunds": 7}
    assert {topic: found["sent"] for topic, found in stats["topic_stats"].items()} == sent
    assert {row.topic: row.acknowledged for row in page.topics} == sent
    assert {row.topic: row.dead for row in page.topics} == dead
    for job in ("process", "store"):
        assert shop.prometheus.by(TOPIC, f'{SENT}{{job="{job}"}}') == sent
        assert shop.prometheus.by(TOPIC, f'{DEAD}{{job="{job}"}}') == dead


def test_the_pending_dead_letters_agree(shop):
    listed = CliRunner().invoke(main, ["dlq", "list", "--json", "--store", str(shop.path)]).output
    page = queries.overview(Store.open(shop.path, create=False), "15 min", time.time())

    stored = shop.prometheus.value('sum(producer_core_stored_dead_letters{job="store",state="dead"})')

    assert stored == json.loads(listed)["total"] == sum(row.waiting for row in page.topics) == 7


def test_the_histogram_counts_each_acknowledged_message_once(shop):
    count = "messaging_client_operation_duration_seconds_count"

    assert shop.prometheus.value(f'sum({count}{{job="process"}})') == 60
    assert shop.prometheus.value(f'sum({count}{{job="store"}})') == 60
