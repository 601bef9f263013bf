"""Test the data of the settings page."""

from __future__ import annotations

import time

import pytest

from producer_core.dashboard.queries.settings import cluster_connection, settings
from tests.fixtures import masking_rules as masking_rules_fixtures

rules_file = masking_rules_fixtures.rules_file


def test_the_settings_come_from_the_store(store):
    store.change_settings({"keep_settled": 60 * 86_400.0, "dlq_max_bytes": 0}, who="ada", origin="test")
    found = settings(store, time.time())
    values = {one.name: (one.value, one.changed) for one in (*found.kept, *found.bounds)}
    assert values["keep_settled"] == (60 * 86_400.0, True)
    assert values["keep_seconds"] == (7200.0, False)
    assert values["dlq_max_bytes"] == (None, True)
    assert values["dlq_max_size"] == (10_000, False)
    assert found.info.schema_version and found.free > 0


def test_installed_versions_are_listed(store):
    found = settings(store, time.time()).versions
    assert {"producer-core", "confluent-kafka", "librdkafka", "DuckDB", "Streamlit", "Python"} <= found.keys()
    assert "not installed" not in found.values()


def test_alert_and_masking_rules_come_from_their_files(store, path, rules_file):
    path.with_name("alerts.toml").write_text("[rules.slow_delivery]\nenabled = false\n")
    found = settings(store, time.time())
    assert found.alerts.problem is None and found.alerts.switched_off == ("slow_delivery",)
    assert found.masking.rules.names == ("birth_date",) and found.masking.exists


def test_an_invalid_alert_rules_file_is_reported(store, path):
    path.with_name("alerts.toml").write_text("[rules.slow_delivery]\nenabeld = false\n")
    found = settings(store, time.time())
    assert "enabeld" in found.alerts.problem


@pytest.mark.parametrize(
    ("given", "servers", "secret"),
    [
        ("{}", "", False),
        ('{"bootstrap.servers": "a:9092", "acks": "all"}', "a:9092", False),
        (
            '{"bootstrap.servers": "a:9092", "security.protocol": "SASL_SSL", "sasl.password": "***"}',
            "a:9092",
            True,
        ),
    ],
)
def test_connection_settings_never_contain_secrets(given, servers, secret):
    found = cluster_connection("c", given)
    assert (found.servers, found.secret) == (servers, secret)
    assert "acks" not in found.settings and "***" not in found.settings.values()
