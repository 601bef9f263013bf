"""The table of metrics: it follows Prometheus's rules, and the document lists the same metrics."""

from __future__ import annotations

import re

import pytest

from producer_core.producer.prometheus.definitions import METRICS
from producer_core.producer.prometheus.families import TOPICS
from tests.support import ROOT

PAGE = (ROOT / "docs" / "how-to" / "metrics.md").read_text()


def test_the_document_and_the_code_list_the_same_metrics():
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| (.*?) \| ([\w, ]+) \| (.*) \|$", PAGE, re.MULTILINE)

    documented = {
        name: (kind, tuple(re.findall(r"`(\w+)`", labels)), tuple(sources.split(", ")), meaning)
        for name, kind, labels, sources, meaning in rows
    }

    assert documented == {name: tuple(definition) for name, definition in METRICS.items()}
    assert list(documented) == list(METRICS)


def test_the_document_states_the_default_number_of_topics():
    assert f"The first {TOPICS} topics keep their label" in PAGE


def test_every_metric_of_a_documented_query_exists():
    named = set(re.findall(r"\b((?:messaging_client|producer_core)_\w+)", PAGE.partition("## Queries")[2]))
    base = {re.sub(r"_(bucket|sum|count)$", "", name) for name in named}

    assert len(base) > 3
    assert base <= METRICS.keys()


@pytest.mark.parametrize("name", METRICS)
def test_names_follow_the_rules_of_prometheus(name):
    definition = METRICS[name]

    assert name.startswith(("messaging_client_", "producer_core_"))
    assert name.endswith("_total") == (definition.type == "counter")
    assert not name.endswith(("_sum", "_count", "_bucket", "_ms"))
    assert ("_seconds" in name) == ("econds" in definition.help)
    assert not {"key", "message_id", "producer_id", "error_text", "client_id"} & set(definition.labels)


def test_family_names_are_unique_without_the_suffix_of_counters():
    families = [name.removesuffix("_total") for name in METRICS]

    assert len(families) == len(set(families))
