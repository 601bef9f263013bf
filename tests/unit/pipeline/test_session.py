"""The Spark session: its log and its settings."""

from __future__ import annotations

import os
import re

import pytest

from producer_core.pipeline import session
from producer_core.pipeline.session import _settings


def test_sparks_log_keeps_the_output_of_earlier_jobs(tmp_path, monkeypatch):
    log = tmp_path / "spark.log"

    def job(name):
        with session._stderr_to(log, name):
            os.write(2, f"{name} failed\n".encode())

    job("one")
    job("two")
    assert re.fullmatch(
        r"-- .* UTC, one, process \d+\none failed\n-- .* UTC, two, process \d+\ntwo failed\n", log.read_text()
    )

    monkeypatch.setattr(session, "_LOG_BYTES", 10)
    job("three")
    assert "two failed" in (tmp_path / "spark.log.1").read_text()
    assert log.read_text().endswith("three failed\n")
    assert log.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("verbose", [False, True])
def test_a_light_job_limits_its_jvm_to_the_first_compiler_tier(verbose, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def java(light):
        settings = _settings("local[2,4]", "1g", [], verbose=verbose, light=light)
        return settings.get("spark.driver.extraJavaOptions", "")

    assert "-XX:TieredStopAtLevel=1" in java(light=True)
    assert "-XX:TieredStopAtLevel=1" not in java(light=False)
    assert ("log4j2" in java(light=True)) is not verbose
