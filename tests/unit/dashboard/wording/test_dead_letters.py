"""Test the texts about dead letters."""

from __future__ import annotations

import json

import pytest

from producer_core.dashboard import wording
from producer_core.dashboard.wording import dead_letters as dead_letter_wording
from producer_core.dlq import DeadLetterFilter
from producer_core.dlq.limits import DeadLetterLimits, DeadLetterLoad, exceeded_limits
from tests.fixtures.dead_letter_pages import NOW


@pytest.mark.parametrize(
    ("formatted", "expected"),
    [
        (wording.button_label("Replay", 43), "Replay 43"),
        (wording.button_label("Replay", 0), "Replay"),
    ],
)
def test_a_button_names_its_number_of_dead_letters(formatted, expected):
    assert formatted == expected


def test_the_disabled_replay_button_has_a_reason():
    assert wording.why_no_replay("dead", 3, 1) is None
    assert "running producer" in wording.why_no_replay("dead", 3, 0)
    assert wording.why_no_replay("dead", 0, 1) == "Nothing to replay."
    assert "pending" in wording.why_no_replay("archived", 3, 1)


def test_binary_data_is_shown_in_hexadecimal_and_shortened():
    assert wording.hex_dump(b"text") is None
    assert wording.hex_dump(bytes([0, 255, 16])) == "00000000  00 ff 10"
    assert wording.hex_dump(bytes([255]) * 5000).splitlines()[-1] == "… 5,000 bytes in total"


def test_long_values_are_shortened_with_a_note():
    assert wording.pretty({"a": [1, None]}, 100) == '{\n  "a": [\n    1,\n    null\n  ]\n}'
    assert wording.pretty("x" * 30, 10) == f"{'x' * 10}\n… 30 characters in total"


def test_null_empty_text_json_and_bytes_are_distinguished():
    kinds = [
        dead_letter_wording.content(value).kind
        for value in (None, b"", b"null", b"plain", b'{"a": 1}', b"\xff", b"\x00a")
    ]
    assert kinds == ["null", "empty", "json", "text", "json", "bytes", "bytes"]
    assert dead_letter_wording.content(b'{"a":[1]}').text == '{\n  "a": [\n    1\n  ]\n}'


def test_binary_content_is_shown_in_hexadecimal_when_revealed():
    assert dead_letter_wording.content(b"\xff\x10").text == ""
    assert dead_letter_wording.content(b"\xff\x10", reveal=True).text == "00000000  ff 10"
    assert "1,000,000 bytes in total" in dead_letter_wording.content(b"\xff" * 1_000_000, reveal=True).text


def test_stored_bytes_are_shown_as_text_and_in_hexadecimal():
    assert dead_letter_wording.raw_text(b'{"a":1}\xff\x00') == '{"a":1}\\xff⟨U+0000⟩'
    assert dead_letter_wording.hexadecimal(b"ab") == "00000000  61 62"
    assert "… 5,000 bytes in total" in dead_letter_wording.hexadecimal(b"x" * 5_000)


def test_secrets_are_masked_until_revealed():
    value = b'{"password": "hunter2"}'
    assert "hunter2" not in dead_letter_wording.content(value).text
    assert "hunter2" in dead_letter_wording.content(value, reveal=True).text


def test_large_values_are_not_drawn():
    large = b"x" * 10_000_000
    assert dead_letter_wording.content(large).kind == "hidden"
    assert "too long to mask" in dead_letter_wording.content(large).about
    assert len(dead_letter_wording.content(large, reveal=True).text) < 21_000
    assert len(dead_letter_wording.key_cell(large)) < 20


def test_invisible_characters_are_made_visible():
    assert dead_letter_wording.visible("a\u202eb\x00\u200b\n\t") == "a⟨U+202E⟩b⟨U+0000⟩⟨U+200B⟩\n\t"
    assert dead_letter_wording.visible_line("a\nb\tc") == "a↵b→c"
    assert len(dead_letter_wording.visible_line("x" * 10_000_000)) == 200
    assert "\x1b" not in dead_letter_wording.content(json.dumps({"k": "\x1b\u2028\u202e"}).encode()).text


def test_headers_keep_order_and_duplicates_and_distinguish_null_from_empty():
    given = (("b", b"1"), ("a", None), ("b", b""), ("a", b"null"), ("authorization", b"Bearer x"))
    assert [tuple(one) for one in dead_letter_wording.headers(given)] == [
        ("b", "text", "1"), ("a", "null", "null"), ("b", "empty", "empty"), ("a", "text", "null"),
        ("authorization", "text", "***"),
    ]  # fmt: skip


def test_a_filter_is_described_in_words():
    where = DeadLetterFilter(topic="payments", code="X", state=None, ids=("a", "b"))
    assert (
        dead_letter_wording.filtered(where, None, None)
        == "Topic payments, error X, any state, 2 messages selected by id"
    )
    assert dead_letter_wording.filtered(DeadLetterFilter(), "1 hour", None) == "Failed in the last hour"
    assert dead_letter_wording.filtered(DeadLetterFilter(), None, None) == ""


def test_a_selection_reports_other_pages_and_changed_states():
    assert dead_letter_wording.chosen(3, {"dead": 3}, 1, "dead") == "3 selected, 1 on another page."
    assert (
        dead_letter_wording.chosen(4, {"dead": 1, "landed": 2}, 0, "dead")
        == "4 selected. Actions skip the 2 that are now found on the topic and the 1 that is no longer in this store."
    )
    assert dead_letter_wording.chosen(2, {"dead": 1, "archived": 1}, 0, None) == "2 selected."


def test_the_totals_include_the_limits():
    text = dead_letter_wording.waiting(DeadLetterLoad(12_480, 3 << 20, NOW - 7200), DeadLetterLimits(), NOW)
    assert text.startswith(
        "12,480 dead letters pending (limit 10,000); 3.0 MiB (limit 256.0 MiB), oldest 2 h (limit 7 days)."
    )
    load = DeadLetterLoad(12_480, 1, NOW - 8 * 86_400)
    text = dead_letter_wording.over(exceeded_limits(load, DeadLetterLimits(), NOW))
    assert "the limit (dlq_max_size) is 10,000" in text and "(dlq_max_age) is 7.0 days" in text
    assert text.count("nothing is dropped") == 1
    assert dead_letter_wording.waiting(
        DeadLetterLoad(0, 0, None), DeadLetterLimits(None, None, None), NOW
    ).startswith("0 dead letters pending; 0 B.")


def test_a_page_of_older_dead_letters_shows_their_number_and_the_total():
    assert dead_letter_wording.about(51, 1, first=False) == "Showing 1 older dead letter; 51 match."
    assert dead_letter_wording.about(1_051, 50, first=False) == "Showing 50 older dead letters; 1,051 match."
