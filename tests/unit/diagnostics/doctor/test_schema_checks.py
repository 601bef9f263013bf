"""The doctor's checks of a schema registry that responds with something else, and of its options together."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from producer_core.cli import main
from producer_core.diagnostics.doctor.schema_checks import check_schemas

NOWHERE = "127.0.0.1:1"
ORDER = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}'


def a_registry(path, release):
    if path.startswith("/config"):
        return 200, {"compatibilityLevel": "BACKWARD"}
    return 200, {"subject": "orders-value", "version": 1, "id": 7, "schema": ORDER}


@pytest.mark.parametrize("body", [b"<html>Please log in</html>", {}, b"null"], ids=str)
def test_a_registry_that_responds_with_something_else_is_a_problem(serve, body):
    url, _ = serve(lambda path, release: (200, body))
    (found,) = check_schemas(NOWHERE, {}, ["orders"], 10.0, url=url)
    assert found.level == "problem" and "response cannot be used" in found.text


def test_the_option_is_the_registry_of_a_serializer_of_the_settings(serve):
    url, _ = serve(a_registry)
    found = list(check_schemas(NOWHERE, {"value.serializer": "avro"}, ["orders"], 10.0, url=url))
    assert [one.level for one in found] == ["ok", "ok"] and "schema id 7" in found[1].text


def test_the_option_takes_its_credentials_from_the_settings(serve):
    url, _ = serve(a_registry)
    settings = {"schema.registry.basic.auth.user.info": "no separator"}
    (found,) = check_schemas(NOWHERE, settings, ["orders"], 10.0, url=url)
    assert found.level == "problem" and "rejects its settings" in found.text


def test_doctor_accepts_a_serializer_and_the_option_together(serve, tmp_path, monkeypatch):
    monkeypatch.setenv("PRODUCER_CORE_STORE", str(tmp_path / "store.duckdb"))
    url, _ = serve(a_registry)
    arguments = [
        "doctor",
        "-b",
        NOWHERE,
        "-X",
        "value.serializer=avro",
        "--schema-registry",
        url,
        "--timeout",
        "1s",
    ]
    output = CliRunner().invoke(main, arguments).output
    assert "schema.registry.url is not set" not in output
    assert f"broker {NOWHERE}" in output and f"{url} responds" in output
