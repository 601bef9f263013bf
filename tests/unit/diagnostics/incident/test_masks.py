"""Masked contents of a bundle are displayed as the originals are."""

from __future__ import annotations

import uuid

import orjson
import pytest

from producer_core._internal.masking import display_key, display_value, mask_headers
from producer_core.alerts.alert_state import episode_id
from producer_core.diagnostics.incident import masks
from producer_core.diagnostics.incident.replaced_ids import ReplacedIds
from producer_core.dlq.codec import read_headers, write_headers
from producer_core.dlq.revisions.patch import Patch
from producer_core.dlq.revisions.revision_text import change_lines
from producer_core.kafka.classify import fingerprint
from producer_core.store.expired_revisions import EMPTY_PATCH

MAIL = "ada@analytical.example"
OPEN, CLOSED = "Broker: Policy violation", f"unknown customer {MAIL}"


def made(*errors):
    """Return masks that know these errors."""
    ids = ReplacedIds()
    ids.add_errors(errors)
    return masks.Masks(ids)


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
    _, masked, masked_headers, _, _ = made().body("m", value, headers, None, "[]")
    assert display_value(masked) == display_value(value)
    assert mask_headers(read_headers(masked_headers)) == mask_headers(read_headers(headers))


@pytest.mark.parametrize("key", [b"", b"k-7", MAIL.encode(), b"\x00\xff", b'{"token":"abc","id":4}'])
def test_a_masked_key_is_displayed_as_the_original(key):
    assert display_key(masks.masked_key(key)) == display_key(key)


def test_only_fingerprints_of_texts_with_a_masked_part_are_replaced():
    known, revealing = fingerprint("A", OPEN), fingerprint("B", CLOSED)
    ids = ReplacedIds()
    ids.add_errors([(known, "A", OPEN), (revealing, "B", CLOSED), ("0" * 12, "C", OPEN)])
    assert ids.replaced(known) == known
    assert ids.replaced(revealing) != revealing
    assert ids.replaced("0" * 12) != "0" * 12  # it is not the hash of its text
    assert ids.in_text(f"group={revealing}, {known}") == f"group={ids.replaced(revealing)}, {known}"


@pytest.mark.parametrize("first", [OPEN, f"{OPEN} {MAIL}"])
def test_one_text_with_a_masked_part_is_enough(first):
    known = fingerprint("A", OPEN)
    ids = ReplacedIds()
    ids.add_errors([(known, "A", first), (known, "A", OPEN), (known, "A", f"{OPEN} {MAIL}")])
    assert ids.replaced(known) != known


def test_an_unknown_fingerprint_in_a_text_is_replaced_and_one_in_an_error_text_stays():
    ids = ReplacedIds()
    text = "/tmp/group-abcabcabcabc.jsonl"
    assert ids.in_text(text) == text.replace("abcabcabcabc", ids.replaced("abcabcabcabc")) != text
    error = "no route to 0x7f8349262690"
    assert ids.in_error(error) == ids.in_name(error) == error


def test_hosts_of_containers_and_numbers_stay():
    ids = ReplacedIds()
    ids.keep(["3f2a1b4c5d6e"])
    text = "root@3f2a1b4c5d6e wrote 202611270955 at 01930000-0000-7000-8000-00000000abcd-7"
    assert ids.in_text(text) == text


@pytest.mark.parametrize("length", [32, 40, 64, 128])
@pytest.mark.parametrize("case", [str.lower, str.upper])
def test_long_hashes_in_texts_are_left_out(length, case):
    digest = case("0123456789abcdef" * 8)[:length]
    assert ReplacedIds().in_text(f"sha256 {digest}.") == "sha256 ***."
    assert ReplacedIds().in_error(f"{digest}") == "***"


@pytest.mark.parametrize("version", "58")
def test_ids_of_sends_are_replaced_by_equal_random_ones(version):
    session = f"0f1e2d3c-4b5a-{version}978-8695-a4b3c2d1e0f9"
    ids, others = ReplacedIds(), ReplacedIds()
    found = ids.in_name(f"{session}-12")
    assert found.endswith("-12") and session not in found
    assert uuid.UUID(found[:36]).version == int(version)
    assert ids.in_text(f"message {session}-12") == f"message {found}"
    assert others.in_name(f"{session}-12") != found


def test_alerts_with_a_masked_subject_get_the_id_of_the_masked_form():
    secret, known = episode_id("error_rate", MAIL, 5.0), episode_id("error_rate", "orders", 5.0)
    ids = ReplacedIds()
    ids.add_alerts([(secret, "error_rate", MAIL, 5.0), (known, "error_rate", "orders", 5.0)])
    assert ids.replaced(secret) == episode_id("error_rate", ids.name(MAIL), 5.0)
    assert ids.replaced(known) == known


def test_names_with_one_masked_form_stay_apart_even_from_a_name_that_looks_masked():
    ids = ReplacedIds()
    names = [MAIL, "alan@analytical.example", "a***@analytical.example", "orders"]
    found = [ids.name(name) for name in names]
    assert found == [ids.name(name) for name in names] and len({*found}) == 4
    assert found[0] == "a***@analytical.example" and found[3] == "orders"


def test_a_filter_names_a_replaced_group_by_its_new_name_at_any_depth():
    revealing = fingerprint("B", CLOSED)
    known = made((revealing, "B", CLOSED))
    selection = {
        "group": revealing,
        "topic": "orders",
        "filter": {"group": revealing},
        "file": f"{revealing}.jsonl",
    }
    found = orjson.loads(known.selection(orjson.dumps(selection).decode()))
    assert found["group"] == found["filter"]["group"] == found["file"].removesuffix(".jsonl") != revealing
    assert found["topic"] == "orders"
    assert orjson.loads(known.selection('{"group":"abcabcabcabc"}'))["group"] != "abcabcabcabc"
    assert known.selection("no JSON") == "no JSON"
    assert [*masks.short_ids(orjson.dumps(selection).decode())] == [revealing, revealing]


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({"body": "hunter2"}, {"body": "***"}),
        ({"text": "hunter2"}, {"text": "***"}),
        ({"filter": {"body": "a", "text": "b"}}, {"filter": {"body": "***", "text": "***"}}),
        ({"key": "0x6164614061612e6f7267"}, {"key": "a***@aa.org"}),
        ({"key": "0x00ff"}, {"key": "2 bytes that are not text"}),
        ({"keys": [MAIL, "k-7"]}, {"keys": ["a***@analytical.example", "k-7"]}),
        ({"sha256": "a" * 64}, {"sha256": "***"}),
        ({"password": "p", "count": 7, "masked": True}, {"password": "***", "count": 7, "masked": True}),
        ({"topics": {MAIL: "orders"}}, {"topics": {"a***@analytical.example": "orders"}}),
    ],
)
def test_a_filter_quotes_no_contents(given, shown):
    assert orjson.loads(made().selection(orjson.dumps(given).decode())) == shown


def test_hidden_keys_are_hidden_in_filters_too(tmp_path, monkeypatch):
    rules = tmp_path / "masking.toml"
    rules.write_text("hide = ['keys', 'values']")
    monkeypatch.setenv("PRODUCER_CORE_MASKING", str(rules))
    assert orjson.loads(made().selection('{"key":"customer-7","body":"b","code":"C"}')) == {
        "key": "***",
        "body": "***",
        "code": "C",
    }


@pytest.mark.parametrize(
    "patch",
    [
        Patch(({"op": "add", "path": f"/{MAIL}", "value": 7}, {"op": "remove", "path": "/a~1b/0"})),
        Patch(({"op": "replace", "path": "", "value": {"password": "p", "n": [1, None]}},)),
        Patch(({"op": "replace", "path": "/auth/password", "value": "p"},), key=MAIL.encode()),
        Patch((), (("authorization", b"Bearer abc"), ("n", None), ("h", b'"12"')), (MAIL, "debug")),
    ],
)
def test_a_masked_patch_is_described_as_the_original(patch):
    masked = Patch.from_json(made()._patch(patch.to_json()))
    assert change_lines(masked) == change_lines(patch)
    assert MAIL not in masked.to_json() and '"p"' not in masked.to_json()


@pytest.mark.parametrize("text", ["no JSON", "{}", '{"value":[{"op":"add","path":"a"}]}'])
def test_a_damaged_patch_or_effect_or_identity_is_hidden(text):
    assert made()._patch(text) == EMPTY_PATCH
    assert orjson.loads(made()._effect(text)) == {"topics": {}, "choices": {}}
    assert orjson.loads(made()._identity(text))["text"] == "***"


@pytest.mark.parametrize(("headers", "attempts"), [("no JSON", "[]"), ("[[1]]", "[]"), ("[]", "7")])
def test_a_damaged_body_is_hidden(headers, attempts):
    assert made().body("m", b"secret", headers, 5, attempts) == ("m", b"***", "[]", 5, "[]")
