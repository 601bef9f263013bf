"""Masked contents of a bundle are displayed as the originals are."""

from __future__ import annotations

import orjson
import pytest

from producer_core._internal.masking import display_key, display_value, mask_headers
from producer_core.diagnostics.incident import masks
from producer_core.dlq.codec import read_headers, write_headers
from producer_core.kafka.classify import fingerprint

MAIL = "ada@analytical.example"
OPEN, CLOSED = "Broker: Policy violation", f"unknown customer {MAIL}"


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"plain text",
        b'"a JSON text"',
        b'"12"',
        b"12",
        b"null",
        b"true",
        b'{"password":"p","n":[1,2.5,null]}',
        b"\x00\x01\xff",
        f"mail {MAIL}".encode(),
        f'"{MAIL}"'.encode(),
        b"x" * 2_000_000,
        b'{"big":123456789012345678901234567890}',
    ],
)
def test_a_masked_body_is_displayed_as_the_original(value):
    headers = write_headers((("authorization", b"Bearer abcdefgh"), ("h", value), ("n", None)))
    _, masked, masked_headers, _, _ = masks.masked_body(("m", value, headers, None, "[]"))
    assert display_value(masked) == display_value(value)
    assert mask_headers(read_headers(masked_headers)) == mask_headers(read_headers(headers))


@pytest.mark.parametrize("key", [b"", b"k-7", MAIL.encode(), b"\x00\xff", b'{"token":"abc","id":4}'])
def test_a_masked_key_is_displayed_as_the_original(key):
    assert display_key(masks.masked_key(key)) == display_key(key)


def test_only_fingerprints_of_texts_with_a_masked_part_are_replaced():
    known, revealing = fingerprint("A", OPEN), fingerprint("B", CLOSED)
    found = masks.Fingerprints([(known, "A", OPEN), (revealing, "B", CLOSED), ("0" * 12, "C", OPEN)])
    assert found.replaced.keys() == {revealing, "0" * 12}  # the last one is not the hash of its text
    assert found.within(f"group={revealing}, {known}") == f"group={found.replaced[revealing]}, {known}"


def test_one_text_with_a_masked_part_is_enough():
    known = fingerprint("A", OPEN)
    assert known in masks.Fingerprints([(known, "A", OPEN), (known, "A", f"{OPEN} {MAIL}")]).replaced


def test_a_filter_names_a_replaced_group_by_its_new_name():
    revealing = fingerprint("B", CLOSED)
    found = masks.Fingerprints([(revealing, "B", CLOSED)])
    masker = masks.selection_masker(found)
    selection = orjson.dumps({"group": revealing, "text": MAIL, "topic": "orders"}).decode()
    masked = orjson.loads(masker(selection))
    assert masked == {
        "group": found.replaced[revealing],
        "text": "a***@analytical.example",
        "topic": "orders",
    }
    assert orjson.loads(masker('{"group":"abcabcabcabc"}'))["group"] != "abcabcabcabc"
    assert masker("no JSON") == "no JSON"


def test_hidden_keys_are_hidden_in_filters_too(tmp_path, monkeypatch):
    rules = tmp_path / "masking.toml"
    rules.write_text("hide = ['keys', 'values']")
    monkeypatch.setenv("PRODUCER_CORE_MASKING", str(rules))
    masker = masks.selection_masker(masks.Fingerprints([]))
    assert orjson.loads(masker('{"key":"customer-7","body":"b","code":"C"}')) == {
        "key": "***",
        "body": "***",
        "code": "C",
    }


def test_a_masked_setting_stays_json():
    assert orjson.loads(masks.masked_json('"https://u:secret@traces.example/{trace_id}"')).startswith(
        "https://"
    )
    assert "secret" not in masks.masked_json('"https://u:secret@traces.example/{trace_id}"')
    assert masks.masked_json("5.0") == "5.0"
