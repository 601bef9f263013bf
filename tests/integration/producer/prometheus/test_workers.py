"""The documented gunicorn application: its workers come and go, and no counter of their store falls."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import Consumer, TopicPartition

from producer_core.brokers import embedded
from producer_core.brokers.ports import free_ports
from producer_core.store import Store
from tests.fixtures.monitoring import metrics_serve, prometheus
from tests.support import ROOT, eventually

pytestmark = pytest.mark.prometheus

PAGE = (ROOT / "docs" / "how-to" / "metrics.md").read_text()
WORKERS, REQUESTS = 8, 1600
CLIENTS = 8
JITTER = "max_requests_jitter = 20"
"""Left out here, so that all workers end at once and cannot all write to the store before they end."""
CATCH_UP_S = 240
"""Eight workers that start and end at once share the store and two cores; what they could not write is merged later."""
SENT = "messaging_client_sent_messages_total"
LATEST = f"last_over_time({SENT}[10m])"
"""A scrape may fail while eight workers write to the store on two busy cores."""
PARTITIONS = 4


@pytest.fixture(scope="module")
def broker():
    with embedded.start(brokers=1, topics={"orders": PARTITIONS}) as started:
        yield started


def documented(name):
    (block,) = re.findall(rf"```python\n# {re.escape(name)}\n(.*?)```", PAGE, re.DOTALL)
    return block


@contextlib.contextmanager
def gunicorn(folder, servers, store):
    """Run the documented application, and return its port."""
    folder.mkdir()
    app = documented("app.py")
    for old, new in (("broker:9092", servers), ("/var/lib/app/store.duckdb", str(store))):
        assert old in app
        app = app.replace(old, new)
    (folder / "app.py").write_text(app)
    configuration = documented("gunicorn.conf.py")
    assert JITTER in configuration
    (folder / "gunicorn.conf.py").write_text(configuration.replace(JITTER, "max_requests_jitter = 0"))
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "gunicorn", "app:application", "--bind", f"127.0.0.1:{port}"]
    options = ["--preload", "--no-control-socket", "--graceful-timeout", "60", "--log-file", "gunicorn.log"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([*command, *options], cwd=folder, env=environment)
    try:
        eventually(lambda: process.poll() is None and request(port))
        yield port
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0, (folder / "gunicorn.log").read_text()


def request(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", "/buy")
        return connection.getresponse().status == 202
    except (ConnectionError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def records(servers):
    """Return the number of records on the topic, which is the truth."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "counts"})
    try:
        ends = [
            consumer.get_watermark_offsets(TopicPartition("orders", number), timeout=30)
            for number in range(PARTITIONS)
        ]
    finally:
        consumer.close()
    return sum(high - low for low, high in ends)


def ended(store):
    """Return the number of producers that were closed, at the end of their worker."""
    with Store.open(store, create=False).borrow() as connection:
        ((count,),) = connection.execute(
            "SELECT count(*) FROM producers WHERE closed_at IS NOT NULL"
        ).fetchall()
    return count


def test_counters_agree_with_the_topic_although_workers_end(tmp_path, broker):
    store = tmp_path / "store.duckdb"
    with gunicorn(tmp_path / "app", broker.bootstrap_servers, store) as port:
        eventually(store.exists)
        with (
            metrics_serve(store) as url,
            prometheus(tmp_path / "prometheus", {"store": url}) as found,
        ):
            before = eventually(lambda: found.query(LATEST) and int(found.value(LATEST)))
            with ThreadPoolExecutor(CLIENTS) as clients:
                accepted = sum(clients.map(request, [port] * REQUESTS))
            assert accepted == REQUESTS

            total = before + REQUESTS
            eventually(
                lambda: found.value(LATEST) == records(broker.bootstrap_servers) == total, timeout=CATCH_UP_S
            )
            increase = found.value(f"increase({SENT}[10m])")
            eventually(lambda: ended(store) >= WORKERS, timeout=CATCH_UP_S)
            # Prometheus adds up to half a scrape interval at both ends of the window
            assert increase == pytest.approx(REQUESTS, rel=0.1)
            assert found.value(f"max_over_time({SENT}[10m]) - min_over_time({SENT}[10m])") == REQUESTS
            assert found.value(f"resets({SENT}[10m])") == 0

            Store.open(store, create=False).prune(time.time() + 400 * 86400)
            found.wait_for_scrape("store")
            assert found.value(LATEST) == before + REQUESTS
            assert found.value(f"resets({SENT}[10m])") == 0

    stats = subprocess.run(
        [sys.executable, "-m", "producer_core", "metrics", "serve", "--once", "--store", str(store)],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    (total,) = re.findall(rf"^{SENT}{{.*}} (.*)$", stats, re.MULTILINE)
    assert float(total) == records(broker.bootstrap_servers)


def test_a_second_worker_cannot_serve_the_same_port(tmp_path):
    from producer_core.errors import ConfigError
    from producer_core.producer.prometheus import MetricsServer

    with MetricsServer(lambda: b"", port=0) as server:
        with pytest.raises(ConfigError, match="is in use"):
            MetricsServer(lambda: b"", port=server.port)
