"""Client settings from environment variables and from files."""

from __future__ import annotations

import pytest

from producer_core import ConfigError, ReliableKafkaProducer
from producer_core.producer.environment import settings_from
from producer_core.testing import InMemoryTransport

QUIET = {"store": None, "run_replays": False, "health_check_interval": 3600}


def from_env(monkeypatch, environment, **options):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return ReliableKafkaProducer.from_env(transport=InMemoryTransport.factory([]), **QUIET, **options)


def test_a_variable_sets_the_setting_of_its_name(monkeypatch):
    environment = {
        "PRODUCER_CORE_BOOTSTRAP_SERVERS": "a:1,b:2",
        "PRODUCER_CORE_LINGER_MS": "20",
        "PRODUCER_CORE_MAX_BLOCK_MS": "1500",
        "PRODUCER_CORE_COMPRESSION_TYPE": "",
    }
    with from_env(monkeypatch, environment) as producer:
        assert producer.bootstrap_servers == ["a:1", "b:2"]
        assert producer.config.settings["linger.ms"] == "20"
        assert producer.config.max_block == 1.5
        assert producer.config.settings["compression.type"] == "lz4", "an empty variable counts as unset"


def test_arguments_take_precedence_over_variables_and_these_over_the_file(monkeypatch, tmp_path):
    file = tmp_path / "client.properties"
    file.write_text("linger.ms=1\nbatch.size=1000\nretry.backoff.ms=300\n")
    environment = {
        "PRODUCER_CORE_CONFIG": str(file),
        "PRODUCER_CORE_LINGER_MS": "2",
        "PRODUCER_CORE_BATCH_SIZE": "2000",
    }
    with from_env(monkeypatch, environment, config={"linger_ms": 3}) as producer:
        settings = producer.config.settings
        assert (settings["linger.ms"], settings["batch.size"], settings["retry.backoff.ms"]) == (
            3,
            "2000",
            "300",
        )


def test_the_settings_of_schemas_are_client_settings(monkeypatch):
    environment = {
        "PRODUCER_CORE_SCHEMA_REGISTRY_URL": "http://127.0.0.1:9",
        "PRODUCER_CORE_VALUE_SERIALIZER": "avro",
        "PRODUCER_CORE_AUTO_REGISTER_SCHEMAS": "false",
    }
    with from_env(monkeypatch, environment) as producer:
        assert producer.config.schemas.formats == {"value": "avro"}
        assert producer.config.schemas.client["url"] == "http://127.0.0.1:9"
        assert not producer.config.schemas.auto_register


def test_a_secret_is_read_from_the_file_that_its_variable_names(tmp_path):
    (tmp_path / "password").write_text("from-a-file\n")

    found = settings_from({"PRODUCER_CORE_SASL_PASSWORD_FILE": str(tmp_path / "password")})

    assert found == {"sasl.password": "from-a-file"}


def test_a_secret_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(ConfigError, match="PRODUCER_CORE_SASL_PASSWORD_FILE cannot be read"):
        settings_from({"PRODUCER_CORE_SASL_PASSWORD_FILE": str(tmp_path / "missing")})


def test_an_unknown_setting_names_its_variable_and_a_known_one():
    with pytest.raises(ConfigError, match=r"PRODUCER_CORE_LINGER_MZ is not valid.*Did you mean 'linger"):
        settings_from({"PRODUCER_CORE_LINGER_MZ": "5"})


def test_the_variables_of_other_features_are_no_client_settings(tmp_path):
    names = ("STORE", "ALERTS", "ALERT_WEBHOOK", "ALERT_WEBHOOK_TOKEN_FILE", "MASKING", "REQUIRE_SERVICES")
    assert settings_from({f"PRODUCER_CORE_{name}": "x" for name in names} | {"HOME": "/"}) == {}


def test_config_may_be_the_path_of_a_file(tmp_path):
    (tmp_path / "client.json").write_text('{"bootstrap.servers": "a:1", "linger.ms": 7}')
    transport = InMemoryTransport.factory([])
    with ReliableKafkaProducer(config=tmp_path / "client.json", transport=transport, **QUIET) as producer:
        assert producer.bootstrap_servers == ["a:1"]
        assert producer.config.settings["linger.ms"] == 7


@pytest.mark.parametrize(
    "variable", ["MAX_MESSAGES_PER_SECOND", "MAX_BYTES_PER_SECOND", "RATE_LIMIT_BURST_MS"]
)
def test_a_rate_limit_that_is_not_valid_names_its_variable(variable):
    with pytest.raises(ConfigError, match=f"The environment variable PRODUCER_CORE_{variable} is not valid"):
        settings_from({f"PRODUCER_CORE_{variable}": "x"})


def test_a_registry_for_people_who_look_at_values_needs_no_serializer():
    environment = {
        "PRODUCER_CORE_SCHEMA_REGISTRY_URL": "http://registry:8081",
        "PRODUCER_CORE_LINGER_MS": "5",
    }
    assert settings_from(environment) == {"linger.ms": "5"}
    environment["PRODUCER_CORE_VALUE_SERIALIZER"] = "avro"
    assert "schema.registry.url" in {name.replace("_", ".") for name in settings_from(environment)}
