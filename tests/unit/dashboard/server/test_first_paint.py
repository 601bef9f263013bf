"""Test the placeholder that a page shows until the dashboard is drawn."""

from __future__ import annotations

from producer_core.dashboard.server import first_paint

PAGE = b'<html><head></head><body><noscript>No scripts.</noscript><div id="root"></div></body></html>'


def test_a_page_contains_the_placeholder_and_its_script():
    page = first_paint.with_first_paint(PAGE).decode()
    script = page[page.index("<script>") : page.index("</script>")]
    assert page.index('id="root"') < page.index("<script>") and page.count("</script>") == 1
    assert first_paint.LOADING in script and first_paint.DELAYED in script
    assert 'querySelector(".pc-title' in script and "placeholder.remove()" in script
    assert not any(name in script for name in ("DRAWN", "PLACEHOLDER", "DELAYED"))


def test_other_html_pages_are_unchanged():
    assert first_paint.with_first_paint(b"<html>sign in</html>") == b"<html>sign in</html>"
