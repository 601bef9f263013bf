"""Test that the project's Streamlit config file matches the options of the dashboard command."""

from __future__ import annotations

import tomllib

from producer_core.dashboard.server.command import HOST, OPTIONS
from producer_core.dashboard.theme import COLOURS
from tests.support import ROOT

CONFIG = ROOT / ".streamlit" / "config.toml"


def flat(table, prefix=""):
    for name, value in table.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def test_the_config_file_matches_the_options_of_the_command():
    found = dict(flat(tomllib.loads(CONFIG.read_text())))

    assert found.pop("theme.chartCategoricalColors") == list(COLOURS)
    assert found.pop("server.allowedHosts") == [HOST, "localhost"]
    assert found.pop("server.address") == HOST
    options = {
        name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in found.items()
    }
    assert options == dict(OPTIONS)
