"""The Kafka connector for Spark."""

from __future__ import annotations

import sys

import pytest

from producer_core.errors import MissingTool
from producer_core.pipeline import connector


def test_the_connector_needs_jgo_and_names_the_extra(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setitem(sys.modules, "jgo.env", None)
    with pytest.raises(MissingTool, match=r"producer-core\[spark\]"):
        connector.fetch_connector()
