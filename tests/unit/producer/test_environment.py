"""Client settings from environment variables and from files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from producer_core import ConfigError, ReliableKafkaProducer
from producer_core.producer import producer as producer_module
from producer_core.producer.environment import settings_from
from producer_core.testing import InMemoryTransport

ROOT = Path(__file__).parents[3]
QUIET = {"store": None, "run_replays": False, "health_check_interval": 3600}


@pytest.fixture
def options(monkeypatch):
    """Collect the options of each producer."""
    seen, components = [], producer_module.Components
    monkeypatch.setattr(producer_module, "Components", lambda one: seen.append(one) or components(one))
    return seen


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


@pytest.mark.parametrize("servers", [["b:1"], "b:1", {"bootstrap.servers": "b:1"}])
def test_the_brokers_of_the_call_take_precedence_over_those_of_the_environment(monkeypatch, servers):
    environment = {"PRODUCER_CORE_BOOTSTRAP_SERVERS": "a:1", "PRODUCER_CORE_LINGER_MS": "2"}
    with from_env(monkeypatch, environment, bootstrap_servers=servers) as producer:
        assert producer.bootstrap_servers == ["b:1"]
        assert producer.config.settings["linger.ms"] == "2"


def test_the_brokers_of_two_arguments_must_agree(monkeypatch):
    with pytest.raises(ConfigError, match="Keep one"):
        from_env(monkeypatch, {}, bootstrap_servers="b:1", config={"bootstrap.servers": "c:1"})


def test_from_env_accepts_the_path_of_a_file_as_config(monkeypatch, tmp_path):
    (tmp_path / "client.properties").write_text("linger.ms=3\n")
    environment = {"PRODUCER_CORE_BOOTSTRAP_SERVERS": "a:1", "PRODUCER_CORE_LINGER_MS": "2"}
    for path in (tmp_path / "client.properties", str(tmp_path / "client.properties")):
        with from_env(monkeypatch, environment, config=path) as producer:
            assert producer.bootstrap_servers == ["a:1"]
            assert producer.config.settings["linger.ms"] == "3"
    with pytest.raises(ConfigError, match="must be a dict"):
        from_env(monkeypatch, environment, config=5)


def test_the_environment_disables_the_default_store_of_a_producer(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PRODUCER_CORE_STORE", "none")
    options = {"transport": InMemoryTransport.factory([]), "health_check_interval": 3600}
    for create in (ReliableKafkaProducer, ReliableKafkaProducer.from_env):
        with create(bootstrap_servers="a:1", **options) as producer:
            assert producer.store is None
            producer.dead_letter("orders", b"x", text="not JSON")
            assert len(producer.get_dlq_messages()) == 1
    with ReliableKafkaProducer("a:1", store=tmp_path / "own.duckdb", **options) as producer:
        assert producer.store is not None, "an argument takes precedence"
    assert not (tmp_path / "none").exists()


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


def test_every_variable_of_the_documents_is_known(tmp_path):
    """The values here do not suit every setting; only an unknown name counts."""
    (tmp_path / "value").write_text("")
    pages = "\n".join(page.read_text() for page in (ROOT / "docs").rglob("*.md"))
    named = set(re.findall(r"PRODUCER_CORE_[A-Z_]+[A-Z]", pages))
    assert {"PRODUCER_CORE_POLICY", "PRODUCER_CORE_SASL_PASSWORD_FILE"} <= named
    for variable in named:
        value = tmp_path / "value" if variable.endswith(("_FILE", "_CONFIG")) else "1"
        try:
            settings_from({variable: str(value)})
        except ConfigError as error:
            assert "nknown" not in str(error), variable


@pytest.mark.parametrize(
    ("first", "second", "target"),
    [
        ("BOOTSTRAP_SERVERS=a:1", "METADATA_BROKER_LIST=b:1", "bootstrap.servers"),
        ("LINGER_MS=7", "QUEUE_BUFFERING_MAX_MS=9", "linger.ms"),
        ("SASL_PASSWORD=one", "SASL_PASSWORD_FILE={file}", "sasl.password"),
    ],
)
def test_two_variables_that_contradict_each_other_are_both_named(tmp_path, first, second, target):
    (tmp_path / "two").write_text("two")
    pairs = (text.format(file=tmp_path / "two").split("=") for text in (first, second))
    environment = {f"PRODUCER_CORE_{name}": value for name, value in pairs}

    with pytest.raises(ConfigError, match=" and ".join(environment) + f" both set {target}"):
        settings_from(environment)


def test_two_variables_may_agree_and_a_derived_setting_may_have_its_own(tmp_path):
    environment = {
        "PRODUCER_CORE_LINGER_MS": "7",
        "PRODUCER_CORE_QUEUE_BUFFERING_MAX_MS": "7",
        "PRODUCER_CORE_REQUEST_TIMEOUT_MS": "9000",
        "PRODUCER_CORE_SOCKET_TIMEOUT_MS": "8000",
    }
    assert settings_from(environment) == {
        "linger.ms": "7",
        "request.timeout.ms": "9000",
        "socket.timeout.ms": "8000",
    }


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("CONFIG_FILE", "Did you mean PRODUCER_CORE_CONFIG"),
        ("STORE_PATH", "Did you mean PRODUCER_CORE_STORE"),
        ("APPLICATION_NAME", "Did you mean PRODUCER_CORE_APPLICATION"),
        ("APPLICATION_FILE", "Did you mean PRODUCER_CORE_APPLICATION"),
        ("ALERT_WEBHOOK_TOKENS", "Did you mean PRODUCER_CORE_ALERT_WEBHOOK"),
        ("", "Unset it"),
    ],
)
def test_a_misspelt_variable_of_another_feature_is_an_error(variable, meant):
    with pytest.raises(ConfigError, match=rf"PRODUCER_CORE_{variable} is unknown\. {meant}"):
        settings_from({f"PRODUCER_CORE_{variable}": "x"})


@pytest.mark.parametrize(
    ("variable", "value"),
    [("LINGER_MS", "abc"), ("MAX_BLOCK_MS", "soon"), ("MESSAGE_ID_FORMAT", "json"), ("ACKS", "most")],
)
def test_a_client_setting_with_an_invalid_value_names_its_variable(variable, value):
    with pytest.raises(ConfigError, match=f"PRODUCER_CORE_{variable} is not valid.*{value}"):
        settings_from({f"PRODUCER_CORE_{variable}": value})


@pytest.mark.parametrize("line", ["linger.mz=1", "linger.ms=abc", "max_bytes_per_second=x"])
def test_a_setting_of_the_file_that_is_not_valid_names_the_file(tmp_path, line):
    file = tmp_path / "client.properties"
    file.write_text(line)

    with pytest.raises(
        ConfigError, match=f"The file {file} of .*PRODUCER_CORE_CONFIG is not valid.*{line[:5]}"
    ):
        settings_from({"PRODUCER_CORE_CONFIG": str(file)})


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


def test_variables_give_the_arguments_of_the_producer(monkeypatch, tmp_path, options):
    environment = {
        "PRODUCER_CORE_CIRCUIT_BREAKER": "true",
        "PRODUCER_CORE_CIRCUIT_BREAKER_MINIMUM_NUMBER_OF_CALLS": "7",
        "PRODUCER_CORE_ON_SEVERE_ERRORS": "stop",
        "PRODUCER_CORE_RETRY_CONFIG_MAX_RETRIES": "1",
        "PRODUCER_CORE_RETRY_CONFIG_RETRIABLE_ERRORS": "REQUEST_TIMED_OUT, NOT_LEADER_FOR_PARTITION",
        "PRODUCER_CORE_ENABLE_DEDUPLICATION": "true",
        "PRODUCER_CORE_JOURNAL_DIR": str(tmp_path / "journal"),
        "PRODUCER_CORE_ORDERING": "strict",
        "PRODUCER_CORE_MAX_MESSAGES_PER_SECOND": "orders=500,*=2000",
    }
    with from_env(monkeypatch, environment) as producer:
        assert producer.circuits is not None
        assert options[0].circuit_breaker.minimum_number_of_calls == 7
        assert options[0].on_severe_errors == "stop"
        assert producer.retry_config.max_retries == 1
        assert producer.retry_config.retriable_errors == ["REQUEST_TIMED_OUT", "NOT_LEADER_FOR_PARTITION"]
        assert producer.enable_deduplication
        assert producer.guarantees.ordering == "strict"
        assert (tmp_path / "journal").is_dir()
        assert producer.config.rate_limits.messages == {"orders": 500.0, "*": 2000.0}


def test_an_argument_of_the_call_takes_precedence_over_its_variable(monkeypatch):
    environment = {"PRODUCER_CORE_CIRCUIT_BREAKER": "true", "PRODUCER_CORE_ORDERING": "strict"}
    with from_env(monkeypatch, environment, circuit_breaker=False, ordering="key") as producer:
        assert producer.circuits is None
        assert producer.guarantees.ordering == "key"


def test_a_variable_takes_precedence_over_an_argument_in_the_file(monkeypatch, tmp_path):
    (tmp_path / "client.properties").write_text("circuit.breaker=false\nordering=none\nlinger.ms=3\n")
    environment = {
        "PRODUCER_CORE_CONFIG": str(tmp_path / "client.properties"),
        "PRODUCER_CORE_CIRCUIT_BREAKER": "true",
    }
    with from_env(monkeypatch, environment) as producer:
        assert producer.circuits is not None
        assert producer.guarantees.ordering == "none"


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("CIRCUIT_BREAKER", "maybe", "not true or false"),
        ("CIRCUIT_BREAKER_FAILURE_RATE_THRESHOLD", "3", "at most 1"),
        ("CIRCUIT_BREAKER_FAILURE_RATE", "0.5", "circuit_breaker.failure_rate_threshold"),
        ("SHARDS", "two", "whole number"),
        ("RETRY_CONFIG_RETRIABLE_ERRORS_", "X", "retriable_errors"),
    ],
)
def test_an_argument_that_is_not_valid_names_its_variable(variable, value, message):
    with pytest.raises(ConfigError, match=f"PRODUCER_CORE_{variable} is not valid.*{message}"):
        settings_from({f"PRODUCER_CORE_{variable}": value})


@pytest.mark.parametrize("written", ["circuit_breaker=true", "circuit.breaker = TRUE"])
def test_a_file_gives_the_arguments_of_the_producer(tmp_path, written, options):
    (tmp_path / "client.properties").write_text(f"{written}\non_severe_errors=stop\nbootstrap.servers=a:1\n")
    transport = InMemoryTransport.factory([])
    with ReliableKafkaProducer(
        config=tmp_path / "client.properties", transport=transport, **QUIET
    ) as producer:
        assert producer.circuits is not None
        assert options[0].on_severe_errors == "stop"
        assert producer.bootstrap_servers == ["a:1"]


def test_one_dict_gives_brokers_settings_and_arguments(options):
    settings = {"bootstrap.servers": "a:1", "circuit_breaker": True, "dlq_max_size": 5, "linger.ms": 1}
    with ReliableKafkaProducer(settings, transport=InMemoryTransport.factory([]), **QUIET) as producer:
        assert producer.circuits is not None
        assert options[0].dlq_max_size == 5
        assert producer.config.settings["linger.ms"] == 1


def test_an_unknown_part_of_an_argument_is_an_error_with_the_known_ones():
    with pytest.raises(ConfigError, match=r"'bogus' is not a setting of circuit_breaker\. Known: "):
        ReliableKafkaProducer({"bootstrap.servers": "a:1", "circuit_breaker": {"bogus": 1}}, store=None)


def test_the_variables_that_kubernetes_adds_for_a_service_are_no_settings():
    """For the Services producer-core and producer-core-dashboard of the namespace, unless enableServiceLinks is false."""
    links = {
        "PRODUCER_CORE_PORT": "tcp://10.0.0.7:8501",
        "PRODUCER_CORE_PORT_8501_TCP": "tcp://10.0.0.7:8501",
        "PRODUCER_CORE_PORT_8501_TCP_ADDR": "10.0.0.7",
        "PRODUCER_CORE_SERVICE_HOST": "10.0.0.7",
        "PRODUCER_CORE_DASHBOARD_SERVICE_PORT_HTTP": "8501",
        "PRODUCER_CORE_DASHBOARD_PORT_8501_TCP_PROTO": "tcp",
    }
    assert settings_from({**links, "PRODUCER_CORE_LINGER_MS": "7"}) == {"linger.ms": "7"}
