"""Topics and error codes with unusual characters, as promtool and a real Prometheus read them."""

from __future__ import annotations

import subprocess

import pytest

from producer_core.producer.prometheus.exposition import render
from producer_core.producer.prometheus.families import Families
from producer_core.producer.prometheus.server import MetricsServer
from tests.fixtures.monitoring import prometheus
from tests.unit.producer.prometheus.test_exposition import COUNTS, NAMES, reading

pytestmark = pytest.mark.prometheus


def test_promtool_accepts_unusual_labels(promtool):
    text = render(Families().of(reading()))
    found = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, check=False)
    assert found.returncode == 0, found.stderr.decode()


def test_a_real_prometheus_reads_unusual_labels_unchanged(tmp_path):
    text = render(Families().of(reading()))
    with (
        MetricsServer(lambda: text, port=0) as server,
        prometheus(tmp_path / "prometheus", {"process": server.url}) as found,
    ):
        found.wait_for_scrape("process")
        sent = found.query("messaging_client_sent_messages_total")
    by_topic = {labels.get("messaging_destination_name", ""): value for labels, value in sent}
    assert by_topic == dict(zip(NAMES, COUNTS + COUNTS, strict=False))
