"""`pipeline integrity`: invalid options."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from producer_core.cli import main


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--fail-on", "lost,mislaid"], "'mislaid' is not a finding"),
        (["--from-offsets", "[1]"], "is not a JSON object of offsets by partition"),
        (["--from-offsets", '{"0": -4}'], "is not a JSON object of offsets by partition"),
        (["--since", "yesterday"], "is not a time"),
        (["--since", "2h", "--incremental"], "An audit has one start."),
    ],
)
def test_invalid_options_are_rejected_before_anything_starts(options, text):
    result = CliRunner().invoke(
        main, ["pipeline", "integrity", "--topic", "t", "-b", "127.0.0.1:1", *options]
    )
    assert result.exit_code == 2
    assert text in result.output
