"""Lists decode a key with the schema id of its header, also if the key itself begins like a schema id."""

from __future__ import annotations

import json

from click.testing import CliRunner

from producer_core.cli import main
from producer_core.dlq import DeadLetters
from producer_core.store import Store
from tests.fixtures.dead_letter_pages import dead_letter

KEY = b"\0\0\0\0\5\x04ab"
"""The bytes that a schema describes, which look like the schema id 5 and a text."""
HEADERS = (("__key_schema_id", b"\0\0\0\0\7"),)
SEVEN = {
    "type": "record",
    "name": "K",
    "fields": [{"name": "secret", "type": {"type": "fixed", "name": "F", "size": 8}}],
}


def respond(path, release):
    return 200, {"schema": json.dumps(SEVEN) if "/7" in path else '"string"'}


def stored(tmp_path, *changes):
    store = Store.open(tmp_path / "store.duckdb")
    dead = DeadLetters(store)
    dead.add([dead_letter(number, **one) for number, one in enumerate(changes)])
    return store, dead


def test_the_list_and_a_data_frame_read_the_schema_id_of_the_header(serve, tmp_path, monkeypatch):
    url, asked = serve(respond, subjects=["payments-key"])
    monkeypatch.setenv("PRODUCER_CORE_SCHEMA_REGISTRY_URL", url)
    store, dead = stored(tmp_path, {"key": KEY, "headers": HEADERS}, {"key": KEY}, {"key": b"k"})

    listed = CliRunner().invoke(main, ["dlq", "list", "--json", "--store", str(store.path)])

    keys = {one["message_id"]: one["key"] for one in json.loads(listed.output)["records"]}
    assert keys == {"m-0": '{"secret":"***"}', "m-1": "ab", "m-2": "k"}
    frame = dead.to_frame(kind="arrow").to_pylist()
    assert {one["message_id"]: one["key"] for one in frame} == keys
    assert {path.partition("?")[0] for path in asked} == {"/schemas/ids/5", "/schemas/ids/7"}


def test_headers_are_read_only_for_keys_that_may_have_a_schema(tmp_path):
    _, dead = stored(tmp_path, {"key": KEY, "headers": HEADERS}, {"key": b"k"})
    assert dead.headers(["m-0"]) == {"m-0": HEADERS}
    assert dead.headers([]) == {}
