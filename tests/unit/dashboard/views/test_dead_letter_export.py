"""Test the export button of the dead letters page."""

from __future__ import annotations

import pytest

from producer_core.dlq import DeadLetters
from tests.fixtures.dead_letter_pages import dead_letter, page_of
from tests.fixtures.pages import html_of


def positions(block, label, path=()):
    """Return the positions of blocks with this label: their index in each enclosing block."""
    found = []
    for index, child in getattr(block, "children", {}).items():
        if label in str(getattr(child.proto, "popover", "")):
            found.append((*path, index))
        found += positions(child, label, (*path, index))
    return found


@pytest.mark.slow
def test_export_keeps_its_position_after_a_clear(path, store, monkeypatch):
    """The browser keeps the previous element of a position until the page is complete, so Export must not move."""
    DeadLetters(store).add([dead_letter(1), dead_letter(2)])
    page = page_of(path, monkeypatch)
    before = positions(page.main, "Export")

    page.button(key="clear").click().run()

    assert "No matching dead letters." in html_of(page)
    assert len(before) == 1 and positions(page.main, "Export") == before
