"""The range of an incident."""

from __future__ import annotations

import pytest

from producer_core.dashboard.queries.view import View
from producer_core.dashboard.wording import CUSTOM
from producer_core.diagnostics.incident import IncidentWindow
from producer_core.errors import TransferError


@pytest.mark.parametrize(
    ("since", "until"), [(10.0, 10.0), (10.0, 5.0), (float("nan"), 5.0), (0.0, 32 * 86_400.0)]
)
def test_an_empty_or_endless_range_is_refused(since, until):
    with pytest.raises(TransferError):
        IncidentWindow(since, until)


@pytest.mark.parametrize("seconds", [10, 11, 61, 151, 299, 3001, 50_000, 90_000, 604_801, 31 * 86_400])
def test_a_bundle_reaches_back_as_far_as_the_pages_compare(seconds):
    """A page aligns the range to its windows, and then compares it with the period before."""
    since = 1_700_000_123
    window, view = IncidentWindow(since, since + seconds), View(CUSTOM, start=since, end=since + seconds)
    assert window.begin <= view.before(since + seconds + 1.0)[0]
