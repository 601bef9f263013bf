"""The Grafana dashboard: the committed file, its layout, and the metrics that it names."""

from __future__ import annotations

import json
import re
from itertools import combinations

import pytest
from grafana_foundation_sdk.cog import plugins
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as grafana
from grafana_foundation_sdk.models import units

from producer_core.producer.prometheus.definitions import METRICS
from scripts import grafana_dashboard

TEXT = grafana_dashboard.FILE.read_text()
DASHBOARD = json.loads(TEXT)
PANELS = DASHBOARD["panels"]
VARIABLES = {variable["name"]: variable for variable in DASHBOARD["templating"]["list"]}
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
UNITS = {value for value in vars(units).values() if isinstance(value, str)}


@pytest.fixture(scope="module", autouse=True)
def _types():
    plugins.register_default_plugins()


def unknown_fields(given, read, place="dashboard"):
    """Return the places of fields that Grafana's own types do not have, or read differently."""
    if isinstance(given, dict) and isinstance(read, dict):
        missing = [f"{place}.{name}" for name in given if name not in read]
        return missing + [
            found
            for name in given.keys() & read.keys()
            for found in unknown_fields(given[name], read[name], f"{place}.{name}")
        ]
    if isinstance(given, list) and isinstance(read, list) and len(given) == len(read):
        return [
            found
            for number, pair in enumerate(zip(given, read, strict=True))
            for found in unknown_fields(*pair, f"{place}[{number}]")
        ]
    return [] if given == read else [place]


def read_by_grafana(given):
    """Return the dashboard after a way through the types of Grafana 11.6."""
    return json.loads(JSONEncoder(sort_keys=True).encode(grafana.Dashboard.from_json(given)))


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


def test_grafanas_types_have_every_field_and_read_every_value():
    assert unknown_fields(DASHBOARD, read_by_grafana(DASHBOARD)) == []


@pytest.mark.parametrize(
    "spoil",
    [
        lambda panel: panel.update(datasorce=SOURCE),
        lambda panel: panel["targets"][0].update(exprr="up"),
        lambda panel: panel["fieldConfig"]["defaults"].update(units="s"),
        lambda panel: panel["options"].update(reduce={}),
        lambda panel: panel["gridPos"].update(width=8),
    ],
)
def test_a_misspelled_field_is_found(spoil):
    spoiled = json.loads(TEXT)
    spoil(next(panel for panel in spoiled["panels"] if panel["type"] == "stat"))
    assert len(unknown_fields(spoiled, read_by_grafana(spoiled))) == 1


def test_every_unit_is_one_of_grafanas():
    used = {panel["fieldConfig"]["defaults"].get("unit") for panel in PANELS if "fieldConfig" in panel}
    assert used - {None} <= UNITS


def test_every_panel_and_query_uses_the_selected_data_source():
    assert (
        VARIABLES["datasource"]["type"] == "datasource" and VARIABLES["datasource"]["query"] == "prometheus"
    )
    queried = [variable for variable in VARIABLES.values() if variable["type"] == "query"]
    with_source = [panel for panel in PANELS if panel["type"] != "row"] + queried
    assert [one["datasource"] for one in with_source] == [SOURCE] * len(with_source)
    for panel in PANELS:
        targets = panel.get("targets", ())
        assert len({target["refId"] for target in targets}) == len(targets)
        assert all(target["datasource"] == SOURCE for target in targets)


def test_every_variable_that_is_used_is_defined_before_its_use():
    built_in = {"__rate_interval", "__range", "__interval", "__all"}
    named = set(re.findall(r"\$\{?(\w+)", TEXT))
    assert named - built_in == VARIABLES.keys()
    known = set()
    for name, variable in VARIABLES.items():
        assert set(re.findall(r"\$\{?(\w+)", json.dumps(variable.get("query", "")))) <= known
        known.add(name)
