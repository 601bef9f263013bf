"""The first sight of the dashboard: a sentence on the page before the app is there, and only where scripts run."""

from __future__ import annotations

from producer_core.dashboard.server import first_paint

PAGE = b'<html><head></head><body><noscript>No scripts.</noscript><div id="root"></div></body></html>'


def test_a_page_says_what_it_waits_for_until_something_is_drawn():
    page = first_paint.added(PAGE).decode()
    script = page[page.index("<script>") : page.index("</script>")]
    assert page.index('id="root"') < page.index("<script>") and page.count("</script>") == 1
    assert first_paint.SENTENCE in script and first_paint.LATE in script
    assert 'querySelector(".pc-title' in script and "first.remove()" in script
    assert not any(name in script for name in ("DRAWN", "SHAPE", "AFTER"))


def test_another_page_is_left_as_it_is():
    assert first_paint.added(b"<html>sign in</html>") == b"<html>sign in</html>"
