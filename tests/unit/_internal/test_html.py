"""Results in notebooks: tables of escaped and masked text."""

from __future__ import annotations

from producer_core._internal import html


def test_text_is_escaped_and_unprintable_characters_are_replaced():
    assert html.text("<script>") == "&lt;script&gt;"
    assert html.text("a\x00b") == "a�b"
    assert html.text(None) == "None"


def test_long_text_is_truncated():
    assert html.text("x" * 1000) == "x" * 300 + " …"


def test_numbers_have_thousands_separators_and_four_digits():
    assert html.text(1234567) == "1,234,567"
    assert html.text(0.123456) == "0.1235"
    assert html.text(True) == "True"


def test_a_secret_is_masked():
    assert "hunter2" not in html.text("sasl.password=hunter2")


def test_a_page_has_a_title_facts_a_table_and_lines():
    page = html.page(
        "Messages", facts=[("sent", 5)], columns=("topic", "count"), rows=[("orders", 2)], lines=["A note."]
    )

    for part in ("<b>Messages</b>", "sent<br><b>5</b>", ">topic</th>", ">orders</td>", "<div>A note.</div>"):
        assert part in page
    assert "more" not in page


def test_rows_beyond_the_limit_are_counted():
    rows = [(number,) for number in range(html.LISTED + 3)]

    assert "<div>and 10 more</div>" in html.page("Rows", columns=("n",), rows=rows, more=7)
    assert f">{html.LISTED}</td>" not in html.page("Rows", columns=("n",), rows=rows)
