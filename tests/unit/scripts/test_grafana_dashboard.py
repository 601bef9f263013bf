"""The Grafana dashboard: the committed file, its layout, and the metrics that it names."""

from __future__ import annotations

import json
import re
from itertools import combinations

from producer_core.producer.prometheus.definitions import METRICS
from scripts import grafana_dashboard

TEXT = grafana_dashboard.FILE.read_text()
PANELS = json.loads(TEXT)["panels"]


def test_the_committed_file_is_what_the_script_writes():
    assert grafana_dashboard.dashboard() == TEXT


def test_panels_have_unique_ids_and_do_not_overlap():
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
    for one, other in combinations([panel["gridPos"] for panel in PANELS], 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        apart = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or apart
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in PANELS)


def test_every_metric_is_on_a_panel_and_every_panel_names_existing_metrics():
    expressions = " ".join(target["expr"] for panel in PANELS for target in panel.get("targets", ()))
    named = set(re.findall(r"\b((?:messaging_client|producer_core)_\w+)", expressions))
    base = {re.sub(r"_(bucket|sum|count)$", "", name) for name in named}

    without_a_panel = {"producer_core_client_batch_bytes_total", "producer_core_build_info"}
    assert base == METRICS.keys() - without_a_panel
