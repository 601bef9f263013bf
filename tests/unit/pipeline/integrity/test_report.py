"""The report as rows, as HTML, and as JSON."""

from __future__ import annotations

import json

from producer_core.pipeline.integrity.outcome import LedgerGap
from tests.fixtures.audit_reports import FINDINGS, report


def test_each_finding_has_its_position():
    found = report(findings=FINDINGS, lost=1, duplicated=1, reordered=2, unledgered=1)
    assert [row["text"] for row in found.rows()] == [
        "acknowledged at partition 0, offset 12; not in the log",
        "a copy at partition 1, offset 90; the original is at offset 40",
        "a copy at partition 0, offset 91; the original is at partition 1, offset 40",
        "at partition 0, offset 7, after a message of its session with a higher sequence at offset 5",
        "at partition 0, offset 8, after a message of its session that has a higher sequence and is below this range",
        "at partition 0, offset 9; in no ledger",
    ]
    assert found.ids("duplicated") == ["s-2"]
    assert "s-1 acknowledged at partition 0" in repr(found)
    assert not found.clean


def test_a_notebook_shows_the_report_without_a_script():
    html = report(findings=FINDINGS, lost=1, findings_path="<b>")._repr_html_()
    assert "of 1,000 acknowledged messages, 1 is lost" in html
    assert "s-1" in html
    assert "<script" not in html
    assert "&lt;b&gt;" in html


def test_the_report_as_json_has_numbers():
    found = json.loads(json.dumps(report(lost=2, gaps=(LedgerGap("p", 1, 3),)).to_dict()))
    names = ("lost", "duplicated", "reordered", "expired", "pending", "unledgered", "ledger_gaps")
    assert [found[name] for name in names] == [2, 0, 0, 0, 0, 0, 3]
    assert found["ranges"] == {"0": [0, 1_000, 0, 1_000]}
    assert report(lost=2).found(("lost", "duplicated")) == ["lost"]
    assert report(compacted=True).found(("unauditable",)) == ["unauditable"]
    assert report().found(("unauditable", "lost")) == []
