"""The cache of schemas, against registries that hang, answer slowly, are down, or respond with anything."""

from __future__ import annotations

import json
import socketserver

import pytest

from producer_core._internal.schema_id import SchemaTagged
from producer_core._internal.schema_settings import client_settings
from producer_core.kafka.schemas.readers import Reader
from producer_core.kafka.schemas.registry import Registry
from producer_core.kafka.schemas.registry_problem import NO_RESPONSE
from producer_core.kafka.schemas.schema_cache import RETRY_AFTER, SchemaCache


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def cache(url, *, wait=30.0, clock=None, timeout=30.0):
    settings = client_settings({"url": url, "timeout": timeout, "max.retries": 0})
    return SchemaCache(lambda: Registry(settings), wait=wait, clock=clock or Clock())


def test_a_schema_is_fetched_once(serve):
    url, asked = serve(lambda path, _: (200, {"schema": '"long"'}))
    schemas = cache(url)
    for _ in range(3):
        reader = schemas.reader(7)
        assert isinstance(reader, Reader) and reader.read(SchemaTagged(7, b"\x0e")) == 7
    assert len(asked) == 1


def test_a_registry_that_never_responds_is_waited_for_once_until_the_pause_ends(serve):
    url, asked = serve(lambda path, release: (release.wait(60) and (200, {"schema": '"long"'})) or (500, {}))
    clock = Clock()
    schemas = cache(url, wait=0.2, clock=clock)
    assert schemas.reader(1) == NO_RESPONSE
    assert [schemas.reader(number) for number in range(2, 50)] == [NO_RESPONSE] * 48
    assert len(asked) <= 1
    clock.now += RETRY_AFTER
    assert schemas.reader(2) == NO_RESPONSE


def test_an_unknown_id_does_not_stop_other_ids(serve):
    url, asked = serve(
        lambda path, _: (
            (404, {"error_code": 40403, "message": "Schema 9 not found"})
            if "/9" in path
            else (200, {"schema": '"long"'})
        )
    )
    clock = Clock()
    schemas = cache(url, clock=clock)
    assert "has no such schema" in schemas.reader(9) and "has no such schema" in schemas.reader(9)
    assert len(asked) == 1
    assert isinstance(schemas.reader(1), Reader)
    clock.now += RETRY_AFTER
    schemas.reader(9)
    assert len(asked) == 3


def test_a_registry_that_is_down_is_asked_again_after_the_pause_and_cached_schemas_stay(serve):
    broken = []
    url, asked = serve(lambda path, _: (503, {"message": "later"}) if broken else (200, {"schema": '"long"'}))
    clock = Clock()
    schemas = cache(url, clock=clock)
    assert isinstance(schemas.reader(1), Reader)
    broken.append(True)
    assert "HTTP status 503" in schemas.reader(2)
    assert "HTTP status 503" in schemas.reader(3)
    assert isinstance(schemas.reader(1), Reader) and len(asked) == 2
    broken.clear()
    clock.now += RETRY_AFTER
    assert isinstance(schemas.reader(2), Reader)


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({"schema": '{"type": "record"}'}, "not a valid Avro schema"),
        ({"schema": "[" * 5_000}, "not a valid Avro schema"),
        ({"schema": json.dumps({"type": "enum", "name": "E", "symbols": ["A"], "doc": "x" * 2_000_000})}, "longer than 1 MiB"),
        ({"schema": "message", "schemaType": "THRIFT"}, "unknown type"),
        ({"schema": 'syntax = "proto3";', "schemaType": "PROTOBUF"}, "only the text of its Protobuf schema"),
        (b"<html>", "."),
        (b"[]", "."),
        ({}, "response cannot be used"),
    ],
)  # fmt: skip
def test_a_schema_that_cannot_be_used_is_a_sentence(serve, body, sentence):
    url, _ = serve(lambda path, _: (200, body))
    found = cache(url).reader(1)
    assert isinstance(found, str) and sentence in found


def test_references_that_form_a_circle_end(serve):
    reference = [{"name": "a", "subject": "a", "version": 1}]
    url, asked = serve(
        lambda path, _: (
            200,
            {"schema": '"long"', "subject": "a", "id": 1, "version": 1, "references": reference},
        )
    )
    assert isinstance(cache(url).reader(1), Reader)
    assert len(asked) == 2


def test_refused_connections_are_no_wait():
    with socketserver.TCPServer(("127.0.0.1", 0), socketserver.BaseRequestHandler) as closed:
        port = closed.server_address[1]
    assert "did not respond" in cache(f"http://127.0.0.1:{port}").reader(1)
