"""The decoder against registries that are hostile, slow or not the right one, on real HTTP servers."""

from __future__ import annotations

import gzip
import json
import threading

import pytest

from producer_core._internal.schema_settings import client_settings
from producer_core.errors import ConfigError, SchemaUnavailable
from producer_core.kafka.schemas import decoder as decoders
from producer_core.kafka.schemas.bounded_responses import bound_responses
from producer_core.kafka.schemas.decoder import TOO_SLOW, SchemaDecoder, decoder_for
from producer_core.kafka.schemas.readers import Reader
from producer_core.kafka.schemas.registry import Registry
from producer_core.kafka.schemas.registry_problem import NO_RESPONSE
from producer_core.kafka.schemas.schema_cache import SchemaCache
from producer_core.kafka.schemas.subject_check import NO_SUBJECT, OTHER_SUBJECTS
from producer_core.kafka.schemas.viewer_settings import viewer_settings
from producer_core.store import Store

ADDRESS = {
    "type": "record",
    "name": "Address",
    "namespace": "shop",
    "fields": [{"name": "city", "type": "string"}, {"name": "street", "type": "string"}],
}
BODY = b"\x06bob\x0ehunter2"
"""A user and a password, whose schema has the same types as that of an address."""


def tagged(schema_id, body=BODY):
    return b"\0" + schema_id.to_bytes(4, "big") + body


def an_address(path, release):
    return 200, {"schema": json.dumps(ADDRESS)}


def decode(decoder, schema_id=7, topic="users", part="value"):
    return decoder.decode(tagged(schema_id), (), part, topic)


def own(url, **settings):
    """A decoder whose registry the operator's configuration names."""
    return decoder_for(lambda: None, {"schema.registry.url": url, **settings})


def stored(url):
    return decoder_for(lambda: url)


@pytest.fixture(autouse=True)
def no_environment(monkeypatch):
    monkeypatch.delenv("PRODUCER_CORE_SCHEMA_REGISTRY_URL", raising=False)
    monkeypatch.delenv("PRODUCER_CORE_CONFIG", raising=False)


# the subjects of an id


@pytest.mark.parametrize("source", [own, stored])
@pytest.mark.parametrize("subject", ["addresses-value", "users-key", "other-shop.Address"])
def test_a_schema_of_another_topic_is_not_used(serve, source, subject):
    url, _ = serve(an_address, subjects=[subject])
    found = decode(source(url))
    assert found.problem == OTHER_SUBJECTS and found.value is None


@pytest.mark.parametrize("source", [own, stored])
def test_a_schema_without_a_subject_is_not_used(serve, source):
    url, _ = serve(an_address, subjects=[])
    assert decode(source(url)).problem == NO_SUBJECT


@pytest.mark.parametrize("source", [own, stored])
@pytest.mark.parametrize("subject", ["users-value", "users-shop.Address"])
def test_a_schema_of_the_topic_is_used(serve, source, subject):
    url, _ = serve(an_address, subjects=["addresses-value", subject])
    assert decode(source(url)).value == {"city": "bob", "street": "hunter2"}


@pytest.mark.parametrize(
    ("subject", "topic"),
    [
        ("shop.Address", "users"),
        ("users-value", "dc1.users"),
        ("users-value", "users-retry-1"),
        ("users-shop.Address", "dc1.users"),
        ("production.users", "users"),
    ],
)
def test_other_subjects_that_may_be_right_are_used_only_if_the_operator_names_the_registry(
    serve, subject, topic
):
    url, _ = serve(an_address, subjects=[subject])
    assert decode(own(url), topic=topic).value == {"city": "bob", "street": "hunter2"}
    assert decode(stored(url), topic=topic).problem == OTHER_SUBJECTS


@pytest.mark.parametrize(
    ("schema", "kind", "subject"),
    [('{"type": "object", "title": "Address"}', "JSON", "Address"), ('"string"', "AVRO", "users-value")],
)
def test_the_name_of_a_json_schema_is_its_title_and_a_type_has_none(serve, schema, kind, subject):
    url, _ = serve(lambda path, _: (200, {"schema": schema, "schemaType": kind}), subjects=[subject])
    found = own(url).decode(tagged(7, b'"x"' if kind == "JSON" else b"\2x"), (), "value", "users")
    assert found.value == "x"


# what is shown of a response


@pytest.mark.parametrize(
    ("status", "sentence"),
    [
        (404, "The schema registry has no such schema."),
        (403, "The schema registry responded with HTTP status 403."),
        (418, "The schema registry responded with HTTP status 418."),
        (500, "The schema registry responded with HTTP status 500."),
    ],
)
def test_nothing_of_a_response_is_shown_if_the_address_comes_from_the_store(serve, status, sentence):
    url, _ = serve(lambda path, _: (status, {"error_code": 1, "message": "internal page"}))
    assert decode(stored(url)).problem == sentence


def test_secrets_in_the_response_of_the_operators_registry_are_masked(serve):
    url, _ = serve(lambda path, _: (418, b"internal page: api_key=hunter2secret"))
    problem = decode(own(url)).problem
    assert "HTTP status 418" in problem and "hunter2secret" not in problem and "api_key=***" in problem


@pytest.mark.parametrize("kind", ["hunter2", ["hunter2"], {"a": 1}])
def test_the_type_of_a_schema_is_not_shown(serve, kind):
    url, _ = serve(lambda path, _: (200, {"schema": '"string"', "schemaType": kind}))
    found = decode(stored(url))
    assert found.problem and "hunter2" not in found.problem


@pytest.mark.parametrize(
    "address",
    ["ftp://registry", "http://ann:hunter2@registry", "file:///etc/passwd", "http://a b", 5, "mock://x"],
)
def test_an_address_that_a_store_from_elsewhere_has_is_checked_when_it_is_read(address):
    with pytest.raises(ConfigError) as error:
        viewer_settings({}, address, {})
    assert "hunter2" not in str(error.value)
    assert "is not an HTTP address" in decode(stored(address)).problem


@pytest.mark.parametrize(
    "url", ["ftp://user:hunter2@host:8081", "user:hunter2@host:8081", "http://a,ftp://user:hun/ter2@host"]
)
def test_a_password_in_an_address_that_the_client_rejects_is_not_shown(url):
    problem = decode(own(url)).problem
    assert "does not begin with http" in problem
    assert "hun" not in problem
    with pytest.raises(ConfigError) as error:
        Registry(client_settings({"url": url}))
    assert "hun" not in str(error.value)


def test_a_password_in_another_setting_that_the_client_rejects_is_not_shown():
    problem = decode(own("http://host", **{"schema.registry.a.password=hunter2": "x"})).problem
    assert "rejects its settings" in problem and "hunter2" not in problem


def test_a_part_of_a_password_that_looks_like_a_port_is_not_shown():
    problem = decode(own("http://user:hun/ter2@127.0.0.1")).problem
    assert problem and "hun" not in problem and "ter2" not in problem


def test_a_password_in_the_address_of_a_proxy_is_not_shown():
    problem = decode(
        own("http://127.0.0.1:1", **{"schema.registry.proxy": "ftp://user:hun/ter2@proxy"})
    ).problem
    assert problem and "hun" not in problem and "ter2" not in problem


# one id, and all ids


@pytest.mark.parametrize(("status", "affects_all"), [(403, False), (418, False), (401, True), (503, True)])
def test_only_a_failure_of_the_whole_registry_stops_other_ids(serve, status, affects_all):
    url, _ = serve(
        lambda path, _: (status, {}) if "/5" in path else an_address(path, _), subjects=["users-value"]
    )
    decoder = own(url)
    assert decode(decoder, 5).problem
    assert bool(decode(decoder, 6).problem) is affects_all


@pytest.mark.parametrize("schema_id", [0, 2**31, 2**32 - 1])
def test_an_id_that_no_registry_gives_is_not_asked_for(serve, schema_id):
    url, asked = serve(an_address)
    header = [("__value_schema_id", b"\0" + schema_id.to_bytes(4, "big"))]
    assert decode(own(url), schema_id) is None
    assert own(url).decode(BODY, header, "value", "users") is None
    assert not asked


# slow and large responses


def opened(url, **limits):
    registry = Registry(client_settings({"url": url, "timeout": 30, "max.retries": 0}))
    bound_responses(registry.client, **limits)
    return registry


def test_a_response_that_is_too_long_is_not_read_to_its_end(serve):
    sent = []

    def endless():
        while True:
            sent.append(1)
            yield b" " * 65_536

    url, _ = serve(lambda path, _: (200, endless()))
    with pytest.raises(SchemaUnavailable, match="longer than 1 MiB"):
        opened(url, max_bytes=1 << 20).schema(7)
    assert len(sent) < 1_000


def test_a_response_that_is_sent_byte_by_byte_ends_at_the_deadline(serve):
    def dripping(release):
        while not release.wait(0.01):
            yield b" "

    url, _ = serve(lambda path, release: (200, dripping(release)))
    with pytest.raises(SchemaUnavailable, match="not complete"):
        opened(url, max_seconds=0.2).schema(7)


def test_a_compressed_response_is_not_expanded(serve):
    body = gzip.compress(json.dumps({"schema": '"string"'}).encode())
    url, _ = serve(lambda path, _: (200, body), headers=[("Content-Encoding", "gzip")])
    with pytest.raises(SchemaUnavailable, match="compressed"):
        opened(url).schema(7)


def test_requests_that_never_end_do_not_keep_their_places_for_good(serve):
    url, _ = serve(
        lambda path, release: (release.wait(60) and (500, {})) or (500, {}) if "/9" in path else an_address(path, release)
    )  # fmt: skip
    now = [100.0]
    settings = client_settings({"url": url, "timeout": 60, "max.retries": 0})
    cache = SchemaCache(lambda: Registry(settings), wait=30, clock=lambda: now[0])
    for number in range(8):
        assert cache.reader(90 + number, wait=0.01) == NO_RESPONSE
    assert cache.reader(7) == NO_RESPONSE
    now[0] += 31
    assert isinstance(cache.reader(7), Reader)


# many ids


def test_one_list_waits_a_limited_time_for_all_its_ids(serve, monkeypatch):
    now = [100.0]

    def slow(path, release):
        now[0] += 2.9
        return an_address(path, release)

    url, asked = serve(slow, subjects=["users-value"])
    decoder = SchemaDecoder(lambda: {"url": url}, clock=lambda: now[0])
    problems = [decode(decoder, number).problem for number in range(1, 51)]
    assert len(asked) == 4
    assert problems == [""] * 4 + [TOO_SLOW] * 46
    assert decode(decoder, 1).problem == "", "a schema that is cached needs no time"
    now[0] += decoders.PERIOD
    assert decode(decoder, 5).problem == ""


def test_two_decoders_of_one_process_share_schemas_by_source(serve):
    url, asked = serve(an_address, subjects=["users-value"])
    threads = [threading.Thread(target=decode, args=(own(url),)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(asked) == 1
    decode(stored(url))
    assert len(asked) == 2


def test_the_store_keeps_the_address_that_is_read(tmp_path):
    store = Store.open(tmp_path / "store.duckdb")
    store.change_settings({"schema_registry": "http://a:8081,http://b:8081"}, who="ann", origin="test")
    assert viewer_settings({}, store.get_setting("schema_registry"), {}) == {
        "url": "http://a:8081,http://b:8081"
    }
