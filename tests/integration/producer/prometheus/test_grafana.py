"""Every expression of the Grafana dashboard has data in a real Prometheus that scrapes a store and a process."""

from __future__ import annotations

import contextlib
import json
import math
import time

import pytest

from producer_core import CircuitBreaker, CircuitOpen, ReliableKafkaProducer, RetryConfig
from producer_core.alerts import AlertChange, AlertLog, alert
from producer_core.brokers import embedded
from producer_core.prometheus import start_metrics_server
from producer_core.store import Store
from tests.fixtures.monitoring import metrics_serve, prometheus
from tests.support import ROOT, eventually

pytestmark = pytest.mark.prometheus

DASHBOARD = json.loads((ROOT / "deploy" / "grafana" / "producer.json").read_text())
TARGETS = [
    (panel["title"], target["expr"]) for panel in DASHBOARD["panels"] for target in panel.get("targets", ())
]
VARIABLES = {"$__rate_interval": "1m", "$job": ".*", "$instance": ".*", "$topic": ".*"}


class UnreachableProducer:
    """A producer without a broker, whose circuit opens."""

    def __init__(self):
        breaker = CircuitBreaker(max_in_flight_age_s=2.0)
        self.producer = ReliableKafkaProducer("127.0.0.1:1", store=None, circuit_breaker=breaker)

    def send(self):
        with contextlib.suppress(CircuitOpen):
            self.producer.send_message("orders", b"1")

    def close(self):
        self.producer.close(1)


@pytest.fixture(scope="module")
def scraped(tmp_path_factory):
    """A Prometheus that scraped a producer with every outcome, while it was sending."""
    folder = tmp_path_factory.mktemp("grafana")
    path = folder / "store.duckdb"
    with (
        embedded.start(brokers=1, topics={"orders": 2, "refunds": 1}) as broker,
        ReliableKafkaProducer(
            broker.bootstrap_servers,
            store=path,
            journal_dir=folder / "journal",
            enable_deduplication=True,
            application="shop",
            retry_config=RetryConfig(max_retries=1, initial_delay_ms=1, max_delay_ms=2),
        ) as producer,
        contextlib.closing(UnreachableProducer()) as unreachable,
        start_metrics_server(0, producer, unreachable.producer) as server,
        metrics_serve(path) as url,
        prometheus(folder / "prometheus", {"process": server.url, "store": url}) as found,
    ):
        broker.reject("refunds")
        store = Store.open(path, create=False)
        AlertLog(store).record([AlertChange("fired", alert("fenced", "p", time.time(), text="x"))])
        numbers = iter(range(1_000_000))

        def rates_are_known():
            producer.send_message("orders", {"n": next(numbers)})
            producer.send_message("refunds", {"n": next(numbers)})
            unreachable.send()
            dead = "sum by (job) (rate(producer_core_dead_letters_total[1m])) > 0"
            brokers = "sum by (job) (rate(producer_core_broker_round_trip_seconds_count[1m])) > 0"
            refused = "sum by (job) (rate(producer_core_refused_messages_total[1m])) > 0"
            return len(found.query(dead)) == len(found.query(brokers)) == 2 and found.query(refused)

        eventually(rates_are_known, every=0.1)
        yield found


def test_the_dashboard_has_a_target_on_each_panel():
    assert len(TARGETS) >= sum(panel["type"] != "row" for panel in DASHBOARD["panels"]) >= 30


@pytest.mark.parametrize(
    ("title", "expression"), TARGETS, ids=[f"{title} {number}" for number, (title, _) in enumerate(TARGETS)]
)
def test_the_expression_of_a_panel_has_data(scraped, title, expression):
    for name, value in VARIABLES.items():
        expression = expression.replace(name, value)
    assert "$" not in expression

    def finite():
        return [value for _, value in scraped.query(expression) if math.isfinite(value)]

    assert eventually(finite), expression  # a scrape of the store that takes too long leaves a gap


@pytest.mark.parametrize(
    "variable", DASHBOARD["templating"]["list"][1:], ids=lambda variable: variable["name"]
)
def test_a_variable_has_values(scraped, variable):
    metric, label = variable["query"]["query"].removeprefix("label_values(").removesuffix(")").rsplit(", ", 1)
    for name, value in VARIABLES.items():
        metric = metric.replace(name, value)

    assert all(labels[label] for labels, _ in scraped.query(metric))
    assert scraped.query(metric)
