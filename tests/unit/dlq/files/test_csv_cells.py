"""No cell of a CSV file is a formula, and each can be restored."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from producer_core.dlq.files import csv_cells


@given(st.text(st.sampled_from("'=+-@\t\r\n; ab＝\u00a0\ufeff")) | st.text())
def test_an_escaped_cell_is_not_a_formula_and_can_be_unescaped(text):
    cell = csv_cells.safe(text)

    assert csv_cells.plain(cell) == text
    for part in cell.replace("\t", ";").replace("\r", ";").replace("\n", ";").split(";"):
        assert not part.lstrip(" \u00a0\ufeff").startswith(("=", "+", "-", "@", "＝", "＋", "－", "＠"))
    assert not cell.startswith(("\t", "\r", "\n"))
