"""A state file of the test's own."""

from __future__ import annotations

import pytest

from producer_core.cli.send.state_file import StateFile


@pytest.fixture
def path(tmp_path):
    return tmp_path / "sends" / "a.state"


@pytest.fixture
def file(path):
    opened = StateFile(path)
    yield opened
    opened.close()
