"""The columns of a batch."""

from __future__ import annotations

import re

from producer_core.metrics.ack_ledger import GivenUpRow, LedgerRow
from producer_core.metrics.batch import KINDS
from tests.support import ROOT


def test_the_documented_columns_match_the_rows():
    text = (ROOT / "docs" / "reference" / "telemetry.md").read_text()
    assert re.findall(r"^\| \d+ \| `(\w+)`", text, re.MULTILINE) == list(LedgerRow._fields)
    assert ", ".join(f"`{name}`" for name in GivenUpRow._fields) in " ".join(text.split())
    for name in ("statistics", "latencies", "errors"):
        assert f"- `{name}`: {', '.join(KINDS[name].columns)}" in " ".join(text.split())
