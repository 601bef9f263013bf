"""Routes: callbacks, addresses from the environment or a file, and the errors of a wrong address."""

from __future__ import annotations

import os
import threading

import pytest

from producer_core.alerts import Callback, RuleSet, load
from producer_core.alerts.routes import given_routes, missing_addresses, routes_of
from producer_core.alerts.rule_parser import read
from producer_core.errors import ConfigError
from tests.fixtures.alerts import lost, named_function
from tests.support import eventually


def message():
    from producer_core.alerts.payload import notification

    return notification([lost()], "firing", receiver="mine", rule_set=RuleSet(), store="s")


def test_a_callback_gets_the_payload():
    payloads = []

    assert Callback("mine", payloads.append).send(message()).accepted
    assert payloads[0]["alerts"][0]["labels"]["alertname"] == "connection_lost"


def test_a_callback_that_raises_is_a_failure_with_the_exception_name():
    answer = Callback("mine", lambda payload: 1 / 0).send(message())

    assert (answer.accepted, answer.refused, answer.text) == (False, True, "it raised ZeroDivisionError")


def test_a_callback_that_raises_system_exit_is_a_failure():
    def leaves(payload):
        raise SystemExit

    assert not Callback("mine", leaves).send(message()).accepted


def test_a_callback_that_hangs_is_called_once_and_retried_after_it_returns():
    hanging, calls = threading.Event(), []

    def hangs(payload):
        calls.append(payload)
        hanging.wait(60)

    route = Callback("mine", hangs, timeout=0.05)
    first, second = route.send(message()), route.send(message())
    hanging.set()

    assert first.text == "it did not return within 0.05 s" and not first.refused
    assert second.text == "the previous call has not returned yet"
    assert len(calls) == 1
    eventually(lambda: route.send(message()).accepted)


def test_a_named_function_is_a_route():
    (route,) = given_routes([named_function])

    assert (route.name, route.kind, route.severities) == (
        "named_function",
        "callback",
        ("critical", "warning", "info"),
    )
    assert given_routes([Callback("a", named_function), route])[0].name == "a"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([lambda payload: None], "Callback"),
        ([3], "named function"),
        ([named_function, named_function], "Two alert routes"),
    ],
)
def test_a_route_without_a_unique_name_is_refused(given, message):
    with pytest.raises(ConfigError, match=message):
        given_routes(given)


def test_addresses_come_from_the_environment_or_a_file_beside_the_rules_file(tmp_path, monkeypatch):
    path = tmp_path / "alerts.toml"
    path.write_text(
        '[routes.a]\nurl_env = "A_URL"\n[routes.b]\nurl_file = "b.url"\n[routes.c]\nurl_env = "C_URL"\n'
    )
    (tmp_path / "b.url").write_text("https://b.example/hook\n")
    monkeypatch.setenv("A_URL", "https://a.example/hook")
    monkeypatch.setenv("PRODUCER_CORE_ALERT_WEBHOOK", "http://d.example")
    rule_set = load(path)

    found = routes_of(rule_set)

    assert [(route.name, route.url) for route in found] == [
        ("a", "https://a.example/hook"),
        ("b", "https://b.example/hook"),
        ("webhook", "http://d.example"),
    ]
    assert [settings.name for settings in missing_addresses(rule_set)] == ["c"]
    assert "example" not in repr(found)


@pytest.mark.parametrize("address", ["ftp://x/s3cr3t", "s3cr3t", "http:///s3cr3t", "http://h:99999/s3cr3t", "http://h/s3cr3t x\n"])  # fmt: skip
def test_an_invalid_address_is_refused_and_not_repeated(monkeypatch, address):
    monkeypatch.setenv("PRODUCER_CORE_ALERT_WEBHOOK", address)

    with pytest.raises(ConfigError) as caught:
        routes_of(read("")[0])

    assert "s3cr3t" not in str(caught.value)


def test_a_missing_address_file_is_reported_without_its_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("PRODUCER_CORE_ALERT_WEBHOOK_FILE", os.fspath(tmp_path / "no.url"))

    with pytest.raises(ConfigError, match=r"The file no.url of a route cannot be read: FileNotFoundError"):
        routes_of(read("")[0])
