"""Test the texts of numbers."""

from __future__ import annotations

import pytest

from producer_core.dashboard import wording


def test_a_change_has_an_arrow_and_a_text_alternative_even_without_a_previous_value():
    better = wording.change(0.01, 0.02, wording.percent, good=-1)
    assert better == ("↓ from 2.00%", "down from 2.00%", "better")
    assert wording.change(0.02, 0.01, wording.percent, good=-1).tone == "worse"
    assert wording.change(0.0201, 0.02, wording.percent, good=-1).tone == ""
    assert wording.change(5.0, 9.0, wording.rate).tone == ""
    assert wording.change(0.01, 0.01, wording.percent).text == "unchanged"
    assert wording.change(0.01, None, wording.percent).text == "no previous value"
    assert wording.change(None, None, wording.percent).text == ""
    assert wording.change(None, 0.01, wording.percent).text == "before: 1.00%"


@pytest.mark.parametrize(
    ("formatted", "expected"),
    [
        (wording.percent(None), "–"),
        (wording.percent(0.0), "0.00%"),
        (wording.percent(0.00001), "< 0.01%"),
        (wording.percent(0.0042), "0.42%"),
        (wording.percent(0.5), "50.0%"),
        (wording.percent(0.9994), "99.9%"),
        (wording.percent(0.9999), "> 99.9%"),
        (wording.percent(1.0), "100.0%"),
        (wording.milliseconds(None), "–"),
        (wording.milliseconds(0.0057), "5.7 ms"),
        (wording.milliseconds(0.75), "750 ms"),
        (wording.milliseconds(1.04), "1.0 s"),
        (wording.milliseconds(12.0), "12 s"),
        (wording.rate(574.2), "574/s"),
        (wording.rate(0.5), "0.5/s"),
        (wording.compact(2_500_000), "2.5 M"),
        (wording.size(128.3 * 2**20), "128.3 MiB"),
        (wording.size(12), "12 B"),
    ],
)
def test_numbers_have_units_without_false_precision(formatted, expected):
    assert formatted == expected


@pytest.mark.parametrize("format_", [wording.count, wording.compact, wording.percent, wording.milliseconds, wording.rate, wording.size])  # fmt: skip
def test_an_unknown_number_is_a_dash(format_):
    assert format_(None) == "–"


@pytest.mark.parametrize(
    ("formatted", "expected"),
    [
        (wording.compact(0), "0"),
        (wording.compact(999_999), "999,999"),
        (wording.compact(-2_500_000), "-2.5 M"),
        (wording.compact(1.25e15), "1.25e+06 G"),
        (wording.count(0), "0"),
        (wording.plural(0, "message"), "0 messages"),
        (wording.plural(1, "message"), "1 message"),
        (wording.plural(1_000_000, "message"), "1,000,000 messages"),
        (wording.size(0), "0 B"),
        (wording.size(2**50), "1,048,576.0 GiB"),
        (wording.of_limit(512, 1024), "512 B of 1.0 KiB"),
        (wording.of_limit(512, None), "512 B"),
        (wording.sentence_case(""), ""),
        (wording.sentence_case("kafka UI"), "Kafka UI"),
    ],
)
def test_zero_and_huge_numbers_have_the_same_form(formatted, expected):
    assert formatted == expected


def test_a_long_name_keeps_its_beginning_and_its_end():
    assert wording.short("") == ""
    assert wording.short("x" * 26) == "x" * 26
    assert wording.short(f"{'a' * 500}{'b' * 500}") == f"{'a' * 17}…{'b' * 8}"


@pytest.mark.parametrize(
    ("text", "longest", "shown"),
    [
        ("three words here", 16, "three words here"),
        ("three words here", 15, "three words …"),
        ("three words here", 12, "three words …"),
        ("three words, here", 13, "three words …"),
        ("oneverylongword", 8, "onevery …"),
        ("", 5, ""),
    ],
)
def test_a_clipped_text_ends_after_a_whole_word(text, longest, shown):
    assert wording.clipped(text, longest) == shown
