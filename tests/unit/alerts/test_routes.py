"""Routes: callbacks, addresses from the environment or a file, and the errors of a wrong address."""

from __future__ import annotations

import os
import threading

import pytest

from producer_core.alerts import Callback, RuleSet, load
from producer_core.alerts.routes import given_routes, missing_addresses, routes_of, url_source
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


@pytest.mark.parametrize(
    ("address", "fix"),
    [
        ("ftp://127.0.0.1:9093", "A URL begins with http:// or https://."),
        ("127.0.0.1:9093", "A URL begins with http:// or https://."),
        ("http://127.0.0.1:99999", "The port must be a number from 1 to 65535."),
        ("http://127.0.0.1:0", "The port must be a number from 1 to 65535."),
        ("http://127.0.0.1:am", "The port must be a number from 1 to 65535."),
        ("http:///path", "It has no host. For example: http://127.0.0.1:9093."),
        ("http://[::1:9093", "Its host is not valid. An IPv6 address is written in brackets: http://[::1]:9093."),
        ("http://a b", "A URL may contain only printable ASCII characters, without spaces and line breaks."),
    ],
)  # fmt: skip
def test_the_fix_of_an_invalid_address_says_what_is_wrong_with_it(monkeypatch, address, fix):
    monkeypatch.setenv("PRODUCER_CORE_ALERTMANAGER", address)

    with pytest.raises(ConfigError) as caught:
        routes_of(read("")[0])

    assert (caught.value.what, caught.value.fix) == ("The URL of the route 'alertmanager' is invalid.", fix)


def test_an_invalid_token_is_not_reported_as_the_url(monkeypatch):
    monkeypatch.setenv("PRODUCER_CORE_ALERTMANAGER", "http://127.0.0.1:9093")
    monkeypatch.setenv("PRODUCER_CORE_ALERTMANAGER_TOKEN", "s3cr3t token")

    with pytest.raises(ConfigError, match="The token of the route 'alertmanager' is invalid") as caught:
        routes_of(read("")[0])

    assert "s3cr3t" not in str(caught.value)


def test_a_missing_address_file_is_reported_with_its_path_and_the_reason(monkeypatch, tmp_path):
    path = tmp_path / "no.url"
    monkeypatch.setenv("PRODUCER_CORE_ALERT_WEBHOOK_FILE", os.fspath(path))

    with pytest.raises(ConfigError) as caught:
        routes_of(read("")[0])

    assert f"The file {path} with the URL or the token" in caught.value.what
    assert caught.value.what.endswith("cannot be read: No such file or directory.")


def test_an_address_file_that_is_not_text_is_an_error_without_its_content(monkeypatch, tmp_path):
    (tmp_path / "a.url").write_bytes(b"http://s3cr3t\xff")
    monkeypatch.setenv("PRODUCER_CORE_ALERT_WEBHOOK_FILE", os.fspath(tmp_path / "a.url"))

    with pytest.raises(ConfigError, match="is not text") as caught:
        routes_of(read("")[0])

    assert "s3cr3t" not in str(caught.value)


def test_the_source_of_an_address_is_its_variable_or_its_file(tmp_path, monkeypatch):
    path = tmp_path / "alerts.toml"
    path.write_text('[routes.a]\nurl_env = "A_URL"\n[routes.b]\nurl_file = "b.url"\n')
    monkeypatch.setenv("A_URL", "https://a.example/hook")
    monkeypatch.setenv("PRODUCER_CORE_ALERTMANAGER_FILE", "/etc/am.url")
    rule_set = load(path)

    assert url_source("a", rule_set) == "A_URL"
    assert url_source("b", rule_set) == str(tmp_path / "b.url")
    assert url_source("alertmanager", rule_set) == "/etc/am.url"


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        (("a", None), {}, "function= of a Callback is None"),
        ((None, print), {}, "name= of a Callback is None"),
        (("", print), {}, "name= of a Callback is ''"),
        (("n", print), {"severities": ("bad",)}, r"severities= of a Callback is \('bad',\)"),
        (("n", print), {"severities": "critical"}, "severities= of a Callback is 'critical'"),
        (("n", print), {"severities": None}, "severities= of a Callback is None"),
        (("n", print), {"severities": [["critical"]]}, "severities= of a Callback is "),
        (("n", print), {"timeout": 0}, "timeout= of a Callback is 0"),
        (("n", print), {"timeout": "5"}, "timeout= of a Callback is '5'"),
        (("n", print), {"heartbeat": -1}, "heartbeat= of a Callback is -1"),
        (("n", print), {"timeout": float("nan")}, "timeout= of a Callback is nan"),
    ],
)
def test_an_invalid_argument_of_a_callback_is_an_error_at_once(given, options, message):
    with pytest.raises(ConfigError, match=message) as caught:
        Callback(*given, **options)

    assert caught.value.fix.startswith("Pass a ")


def test_a_callback_accepts_every_severity_as_tuple_or_list():
    assert Callback("n", print, severities=["info", "warning", "critical"]).severities[0] == "info"
