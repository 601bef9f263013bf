"""A producer's application: where its name comes from, what carries it, and which dead letters a named producer handles."""

from __future__ import annotations

import pytest

from producer_core import ReliableKafkaProducer
from producer_core.dlq import DeadLetterFilter, DeadLetters, Spill
from producer_core.dlq.codec import read_line, write_line
from producer_core.errors import ConfigError
from producer_core.metrics import recorder
from producer_core.producer.application import application_name, application_version
from producer_core.producer.dead_letter_backend import spill_path
from producer_core.producer.environment import settings_from
from producer_core.testing import InMemoryTransport
from tests.fixtures.replays import dead_letter, message_id

SERVICE = {"OTEL_SERVICE_NAME": "service"}
ATTRIBUTES = {"OTEL_RESOURCE_ATTRIBUTES": "service.version=2, service.name=order%20entry"}


@pytest.mark.parametrize(
    ("given", "environment", "name"),
    [
        ("argument", {"PRODUCER_CORE_APPLICATION": "variable", **SERVICE}, "argument"),
        (None, {"OTEL_SERVICE_NAME": "caf\udce9 bar\n"}, "caf bar"),
        (None, {"PRODUCER_CORE_APPLICATION": "variable", **SERVICE}, "variable"),
        (None, {**SERVICE, **ATTRIBUTES}, "service"),
        (None, ATTRIBUTES, "order entry"),
        (None, {"OTEL_RESOURCE_ATTRIBUTES": "service.version=2"}, ""),
        (None, {"PRODUCER_CORE_APPLICATION": ""}, ""),
        (None, {}, ""),
    ],
)
def test_the_argument_precedes_the_variable_and_the_variable_opentelemetrys_service_name(
    given, environment, name
):
    assert application_name(given, environment) == name


@pytest.mark.parametrize("given", ["", " checkout", "a\nb", "x" * 256, 7, b"checkout"])
def test_an_invalid_name_is_rejected(given):
    with pytest.raises(ConfigError, match="is not the name of an application"):
        application_name(given, {})


def test_the_variable_is_not_a_client_setting():
    assert settings_from({"PRODUCER_CORE_APPLICATION": "checkout", "PRODUCER_CORE_LINGER_MS": "7"}) == {
        "linger.ms": "7"
    }


def producer_of(store, application=None, settings=None):
    return ReliableKafkaProducer(
        "memory:1",
        settings,
        store=store,
        cluster_id="here",
        application=application,
        transport=InMemoryTransport,
        run_replays=False,
    )


def test_the_store_and_dead_letters_carry_the_name(store, monkeypatch):
    monkeypatch.setenv("PRODUCER_CORE_APPLICATION", "checkout")

    with producer_of(store) as producer:
        producer.dead_letter("orders", b"{", code="malformed", text="not JSON")

    (row,) = store.rows("producers")
    (found,) = DeadLetters(store).find(DeadLetterFilter())
    assert (row["application"], found.application) == ("checkout", "checkout")


@pytest.mark.parametrize(
    ("given", "environment", "version"),
    [
        ("4.2.1", {"PRODUCER_CORE_APPLICATION_VERSION": "4.2.0"}, "4.2.1"),
        (None, {"PRODUCER_CORE_APPLICATION_VERSION": "4.2.0"}, "4.2.0"),
        (None, {"OTEL_RESOURCE_ATTRIBUTES": "service.name=checkout,service.version=4%2E1"}, "4.1"),
        (None, {}, ""),
    ],
)
def test_the_version_comes_from_the_argument_the_variable_or_opentelemetry(given, environment, version):
    assert application_version(given, environment) == version


@pytest.mark.parametrize("version", ["", " 4.2", "4\n2", "x" * 256, 4.2])
def test_an_invalid_version_is_refused(version):
    with pytest.raises(ConfigError, match="is not the version of an application"):
        application_version(version, {})


def test_dead_letters_carry_the_version(store, monkeypatch):
    monkeypatch.setenv("PRODUCER_CORE_APPLICATION_VERSION", "4.2.1")

    with producer_of(store) as producer:
        producer.dead_letter("orders", b"{", code="malformed", text="not JSON")

    (found,) = DeadLetters(store).find(DeadLetterFilter())
    assert (found.application, found.application_version) == ("", "4.2.1")


def test_a_version_among_the_settings_applies(store):
    with producer_of(store, settings={"application_version": "4.2.1"}) as producer:
        producer.dead_letter("orders", b"{", code="malformed", text="not JSON")

    (found,) = DeadLetters(store).find(DeadLetterFilter())
    assert found.application_version == "4.2.1"


def test_a_spilled_dead_letter_gets_its_version_from_its_producer(store):
    with producer_of(store, settings={"application_version": "4.2.1"}) as producer:
        identity = producer.identity
    Spill(spill_path(store.path)).append([dead_letter(1, producer_id=identity)])

    with producer_of(store, "another", settings={"application_version": "9"}):
        pass

    assert DeadLetters(store).get(message_id(1)).application_version == "4.2.1"


def test_a_message_that_fails_again_has_the_version_that_failed_last(store):
    DeadLetters(store).add([dead_letter(1, application_version="4.2.0")])

    DeadLetters(store).add([dead_letter(1, application_version="4.2.1", failed_at=2e9)])

    assert DeadLetters(store).get(message_id(1)).application_version == "4.2.1"


def test_a_failed_replay_of_another_application_or_without_a_version_keeps_the_version(store):
    known = {"application": "checkout", "application_version": "4.2.0"}
    DeadLetters(store).add([dead_letter(1, **known), dead_letter(2, **known)])

    other = dead_letter(1, application="operator", application_version="9", failed_at=2e9)
    DeadLetters(store).add([other, dead_letter(2, application="checkout", failed_at=2e9)])

    versions = {DeadLetters(store).get(message_id(number)).application_version for number in (1, 2)}
    assert versions == {"4.2.0"}


def test_a_dead_letter_that_close_finds_unwritten_carries_the_name(store, monkeypatch):
    """Regression: it goes through the spill file, whose lines have no name, before the store has the producer's row."""
    monkeypatch.setattr(recorder, "_COLLECT_S", 3600.0)
    monkeypatch.setattr(recorder, "_TICK", 3600.0)
    with producer_of(store, "checkout") as producer:
        producer.dead_letter("orders", b"{", code="malformed", text="not JSON")
    (found,) = DeadLetters(store).find(DeadLetterFilter())
    assert found.application == "checkout"


def test_a_named_producer_handles_no_dead_letter_of_another_application(store):
    """It handles those without a name: processes without the name may belong to the same application."""
    DeadLetters(store).add(
        [
            dead_letter(1, cluster_id="here", application="checkout"),
            dead_letter(2, cluster_id="here", application="billing"),
            dead_letter(3, cluster_id="here"),
        ]
    )

    with producer_of(store) as everything, producer_of(store, "checkout") as checkout:
        assert everything.get_stats()["dlq_stats"]["total_messages"] == 3
        assert checkout.get_stats()["dlq_stats"]["total_messages"] == 2
        assert {message.id for message in checkout.get_dlq_messages()} == {message_id(1), message_id(3)}
        assert checkout.dlq.count(DeadLetterFilter(application="")) == 1
        assert checkout.monitor().application == "checkout"
        assert checkout.clear_dlq() == 2

    assert DeadLetters(store).count_by(DeadLetterFilter(), "application") == {"billing": 1}


def test_a_spilled_dead_letter_can_be_read_by_earlier_versions_and_gets_its_name_from_its_producer(store):
    """Regression: a version without application names set the line aside as damaged."""
    with producer_of(store, "checkout") as producer:
        identity = producer.identity
    assert b"application" not in write_line(dead_letter(1, application="checkout"))
    spilled = dead_letter(1, producer_id=identity, cluster_id="here", application="checkout")
    Spill(spill_path(store.path)).append([spilled, dead_letter(2, cluster_id="here")])

    with producer_of(store, "billing"):
        pass

    assert DeadLetters(store).get(message_id(1)).application == "checkout"
    assert DeadLetters(store).get(message_id(2)).application == ""


def test_a_spilled_dead_letter_of_a_later_version_is_read_without_its_new_fields():
    line = write_line(dead_letter(1))
    assert read_line(line[:-2] + b',"colour":"red"}\n') == dead_letter(1)


def test_a_replay_of_another_application_that_fails_keeps_the_name(store):
    DeadLetters(store).add([dead_letter(1, application="checkout")])

    DeadLetters(store).add([dead_letter(1, application="operator", failed_at=2e9)])

    assert DeadLetters(store).get(message_id(1)).application == "checkout"


def test_rows_of_an_earlier_version_have_no_name(store):
    with store.borrow(write=True) as connection:
        for table in ("producers", "dead_letters"):
            columns = connection.execute(
                "SELECT column_name, data_type FROM duckdb_columns() "
                "WHERE table_name = ? AND column_name <> 'application' AND NOT is_nullable",
                [table],
            ).fetchall()
            names = ", ".join(name for name, _ in columns)
            values = ", ".join(f"CAST('0' AS {kind})" for _, kind in columns)
            connection.execute(f"INSERT INTO {table} ({names}) VALUES ({values})")

    with store.borrow() as connection:
        assert connection.execute(
            "SELECT application FROM producers UNION ALL SELECT application FROM dead_letters"
        ).fetchall() == [("",), ("",)]


def test_the_variables_override_the_file_of_the_settings(tmp_path):
    """Regression: the name and the store of a shared file took precedence."""
    file = tmp_path / "producer.toml"
    file.write_text("application = shared\nstore = /shared.duckdb\nlinger_ms = 5\n")
    environment = {"PRODUCER_CORE_CONFIG": str(file)}
    assert settings_from(environment)["application"] == "shared"

    own = {"PRODUCER_CORE_APPLICATION": "checkout", "PRODUCER_CORE_STORE": "/own.duckdb"}
    assert settings_from({**environment, **own}) == {"linger.ms": "5"}
