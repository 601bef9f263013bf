"""A failure of the registry is never the fault of a message, and never a wrong schema id."""

from __future__ import annotations

import json
import pickle

import pytest
from confluent_kafka.schema_registry import Schema

from producer_core import SchemaUnavailable
from producer_core._internal.schema_settings import client_settings
from producer_core.kafka.schemas.registry import Registry

ORDER = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}'
LOGIN = b"<html>Please log in</html>"
REQUESTS = [
    lambda registry: registry.latest("orders-value"),
    lambda registry: registry.latest_or_none("orders-value"),
    lambda registry: registry.schema(7),
    lambda registry: registry.version("orders-value", 1),
    lambda registry: registry.id_of("orders-value", Schema(ORDER, "AVRO"), register=False),
    lambda registry: registry.id_of("orders-value", Schema(ORDER, "AVRO"), register=True),
    lambda registry: registry.evolution("orders-value", 7),
    lambda registry: registry.level(),
    lambda registry: registry.level("orders-value"),
    lambda registry: registry.compatibility("orders-value", ORDER, "AVRO"),
]


def opened(url, **settings):
    return Registry(client_settings({"url": url, "timeout": 10, "max.retries": 0, **settings}))


@pytest.mark.parametrize("body", [LOGIN, b"null", b"5", {}, []], ids=str)
@pytest.mark.parametrize("ask", REQUESTS)
def test_a_response_of_something_else_is_a_failure_of_the_registry(serve, ask, body):
    url, _ = serve(lambda path, release: (200, body))
    registry = opened(url)
    with pytest.raises(SchemaUnavailable, match="response cannot be used"):
        ask(registry)
    registry.close()


def test_a_login_page_is_described(serve):
    url, _ = serve(lambda path, release: (200, LOGIN))
    registry = opened(url)
    with pytest.raises(SchemaUnavailable, match=r"it is not JSON.*login page"):
        registry.latest("orders-value")
    registry.close()


@pytest.mark.parametrize("number", [None, 0, -1, 2**31, True, "7", 7.5])
def test_a_response_without_an_id_gives_no_id(serve, number):
    body = {"subject": "orders-value", "version": 1, "id": number, "schema": ORDER}
    url, _ = serve(lambda path, release: (200, body))
    registry = opened(url)
    for ask in (REQUESTS[0], REQUESTS[4], REQUESTS[5]):
        with pytest.raises(SchemaUnavailable, match="has no schema id"):
            ask(registry)
    registry.close()


def test_the_registry_is_asked_again_after_a_response_without_an_id(serve):
    answers = iter([{}, {"subject": "orders-value", "version": 1, "id": 7, "schema": ORDER}])
    url, _ = serve(lambda path, release: (200, next(answers)))
    registry = opened(url)
    with pytest.raises(SchemaUnavailable):
        registry.id_of("orders-value", Schema(ORDER, "AVRO"), register=False)
    assert registry.id_of("orders-value", Schema(ORDER, "AVRO"), register=False) == 7
    registry.close()


@pytest.mark.parametrize(
    "body", [b"<html>" + b"x" * 1_000_000, {"error_code": 1, "message": "x" * 1_000_000}]
)
def test_an_error_quotes_only_the_beginning_of_a_long_response(serve, body):
    url, _ = serve(lambda path, release: (503, body))
    registry = opened(url)
    with pytest.raises(SchemaUnavailable, match="HTTP status 503") as raised:
        registry.latest("orders-value")
    assert len(str(raised.value)) < 1_000
    registry.close()


def test_a_deleted_subject_is_named(serve):
    def deleted(path, release):
        if path.startswith("/subjects/orders-value/versions?") and "deleted=true" in path.lower():
            return 200, [1, 2]
        return 404, {"error_code": 40401, "message": "Subject not found."}

    url, _ = serve(deleted)
    registry = opened(url)
    found = registry.evolution("orders-value", 7)
    assert (found.readable, found.current, found.reason) == (
        None,
        False,
        "The subject orders-value was deleted.",
    )
    assert registry.evolution("payments-value", 7) is None
    registry.close()


def test_the_error_survives_a_process_pool(serve):
    url, _ = serve(lambda path, release: (200, LOGIN))
    registry = opened(url)
    with pytest.raises(SchemaUnavailable) as raised:
        registry.latest("orders-value")
    copy = pickle.loads(pickle.dumps(raised.value))
    assert (str(copy), copy.fix) == (str(raised.value), raised.value.fix)
    registry.close()


def test_a_registry_that_responds_as_documented_is_used(serve):
    body = {"subject": "orders-value", "version": 1, "id": 7, "schema": ORDER}
    url, _ = serve(lambda path, release: (200, body))
    registry = opened(url)
    assert registry.latest("orders-value").schema_id == 7
    assert registry.id_of("orders-value", Schema(ORDER, "AVRO"), register=False) == 7
    assert json.loads(registry.schema(7).schema_str)["name"] == "Order"
    registry.close()
