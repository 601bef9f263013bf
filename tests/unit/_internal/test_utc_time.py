"""A time in a message is to the minute and in UTC, and one function writes it."""

from __future__ import annotations

import re

import pytest

from producer_core._internal.utc_time import utc_minute
from tests.support import ROOT


@pytest.mark.parametrize(
    ("at", "text"),
    [
        (0.0, "1970-01-01 00:00 UTC"),
        (1_769_860_859.9, "2026-01-31 12:00 UTC"),
        (-60.0, "1969-12-31 23:59 UTC"),
    ],
)
def test_a_time_is_cut_to_its_minute(at, text):
    assert utc_minute(at) == text


def test_no_other_module_formats_a_time_to_the_minute_in_utc():
    inline = re.compile(r'%Y-%m-%d %H:%M(?!:)(\} UTC| UTC"|")')
    found = {path.name for path in (ROOT / "producer_core").rglob("*.py") if inline.search(path.read_text())}
    assert found == {"utc_time.py"}
