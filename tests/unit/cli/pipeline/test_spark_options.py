"""The Spark options of a command."""

from __future__ import annotations

import signal
from types import SimpleNamespace

import click
import pytest

from producer_core.cli.pipeline.spark_options import SparkChoice
from producer_core.pipeline import session


def test_a_command_that_handles_ctrl_c_itself_is_not_reported_as_interrupted(monkeypatch):
    monkeypatch.setattr(session, "open_session", lambda **_: SimpleNamespace(stop=lambda: None))

    def paused():
        with SparkChoice().session("reprocess"):
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
            raise click.exceptions.Exit(130)

    with pytest.raises(click.exceptions.Exit):
        paused()
