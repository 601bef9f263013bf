"""The reader of an input is chosen by its name and its content."""

from __future__ import annotations

import pytest

from producer_core.cli.send.open_rows import open_rows
from producer_core.errors import ConfigError
from tests.fixtures.input_rows import written


def test_an_unknown_extension_requires_the_format_option(tmp_path):
    with pytest.raises(ConfigError, match="--format"):
        open_rows(written(tmp_path, "a.dat", "1\n"))


def test_stop_ends_the_iteration_after_the_current_row(tmp_path):
    rows = open_rows(written(tmp_path, "a.jsonl", "1\n2\n3\n"))
    reading = iter(rows)
    next(reading)

    rows.stop()

    assert list(reading) == []
