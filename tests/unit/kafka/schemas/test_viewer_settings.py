"""Where a command, a page or a notebook finds the schema registry."""

from __future__ import annotations

import pytest

from producer_core.errors import ConfigError
from producer_core.kafka.schemas.viewer_settings import viewer_settings
from producer_core.store import Store

STORED = "http://store:8081"


def test_without_an_address_there_is_no_registry():
    assert viewer_settings({"schema.registry.timeout": 1}, None, {"PRODUCER_CORE_LINGER_MS": "5"}) is None


def test_options_come_before_the_environment_and_the_store():
    environment = {"PRODUCER_CORE_SCHEMA_REGISTRY_URL": "http://environment"}
    given = {"schema.registry.url": "http://option", "linger.ms": 5}
    assert viewer_settings(given, STORED, environment) == {"url": "http://option"}
    assert viewer_settings({}, STORED, environment) == {"url": "http://environment"}
    assert viewer_settings({}, STORED, {}) == {"url": STORED}


def test_the_environment_has_credentials_in_files(tmp_path):
    (tmp_path / "client.properties").write_text(
        "bootstrap.servers=broker:9092\nschema.registry.url=http://file\nschema.registry.timeout=2\n"
    )
    (tmp_path / "user").write_text("ann:secret\n")
    environment = {
        "PRODUCER_CORE_CONFIG": str(tmp_path / "client.properties"),
        "PRODUCER_CORE_SCHEMA_REGISTRY_BASIC_AUTH_USER_INFO_FILE": str(tmp_path / "user"),
    }
    assert viewer_settings({}, STORED, environment) == {
        "url": "http://file", "timeout": "2", "basic.auth.user.info": "ann:secret",
    }  # fmt: skip


def test_credentials_are_not_used_with_the_address_of_the_store():
    environment = {"PRODUCER_CORE_SCHEMA_REGISTRY_BASIC_AUTH_USER_INFO": "ann:secret"}
    assert viewer_settings({}, STORED, environment) == {"url": STORED}


@pytest.mark.parametrize("value", ["ftp://x", "localhost:8081", "http://ann:secret@registry:8081", 5, ""])
def test_the_store_refuses_credentials_and_what_is_no_address(tmp_path, value):
    store = Store.open(tmp_path / "store.duckdb")
    with pytest.raises(ConfigError) as found:
        store.change_settings({"schema_registry": value}, who="ann", origin="test")
    assert "secret" not in str(found.value)
