"""A number and its noun agree."""

from __future__ import annotations

import pytest

from producer_core._internal.plural import plural, them


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 messages"), (1, "1 message"), (2, "2 messages"), (2_000, "2,000 messages")]
)
def test_a_noun_agrees_with_its_number(number, text):
    assert plural(number, "message") == text


def test_an_irregular_plural_is_given():
    assert [plural(number, "is", "are") for number in (1, 2)] == ["1 is", "2 are"]


def test_the_pronoun_agrees_with_the_number():
    assert [them(number) for number in (0, 1, 2)] == ["them", "it", "them"]
