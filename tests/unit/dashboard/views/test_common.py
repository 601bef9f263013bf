"""Test the elements that every view uses."""

from __future__ import annotations

from producer_core.dashboard.views import common


def test_names_are_escaped_in_links():
    assert (
        common.link_element("<b>&", 'errors?x="')
        == '<a class="pc-link" href="errors?x=&quot;">&lt;b&gt;&amp;</a>'
    )
