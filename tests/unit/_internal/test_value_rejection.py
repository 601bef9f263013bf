"""A rejected value of a client setting: the reason, and the valid values."""

from __future__ import annotations

import pytest

from producer_core._internal.value_rejection import CHOICES, rejection


@pytest.mark.parametrize(("name", "value"), [(name, value) for name in CHOICES for value in CHOICES[name]])
def test_the_client_accepts_each_listed_choice(name, value):
    assert rejection(name, value) is None


@pytest.mark.parametrize(
    ("name", "value", "reason", "fix"),
    [
        ("linger.ms", "abc", "'abc' is not valid", "Use a number in the range 0..900000."),
        ("linger.ms", "", "'' is not valid", "Use a number in the range 0..900000."),
        (
            "linger.ms",
            10**9,
            "1000000000 is outside the allowed range 0..900000",
            "Use a number in this range.",
        ),
        ("linger.ms", float("nan"), "nan is not a number that the client accepts", "Use a finite number."),
        (
            "message.timeout.ms",
            2**32 + 1,
            "4294967297 is outside the allowed range 0..2147483647",
            "Use a number in this range.",
        ),
        (
            "compression.type",
            "brotli",
            "'brotli' is not valid",
            "Valid: none, gzip, snappy, lz4, zstd or auto.",
        ),
        ("enable.idempotence", "maybe", "'maybe' is not valid", "Use True or False."),
        ("debug", "zz", 'Invalid value "zz"', ""),
    ],
)
def test_a_rejection_names_the_valid_values_and_not_the_librdkafka_property(name, value, reason, fix):
    assert rejection(name, value) == (reason, fix)
