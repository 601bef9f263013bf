"""Test the base path that all middleware shares."""

from __future__ import annotations

import pytest

from producer_core.dashboard.auth.asgi import path_prefix


@pytest.mark.parametrize(
    ("base", "prefix"),
    [("", ""), ("/", ""), ("shop", "/shop"), ("/shop/", "/shop"), ("a/b", "/a/b"), ("//", "")],
)
def test_a_base_path_becomes_a_prefix_without_a_slash_at_its_end(base, prefix):
    assert path_prefix(base) == prefix
