"""Jobs that merge telemetry: the records that it set aside."""

from __future__ import annotations

from producer_core.cli.telemetry_output import _reasons as set_aside
from producer_core.metrics.telemetry import SCHEMA_VERSION


def test_records_set_aside_for_one_reason_share_a_line():
    reasons = set_aside({None: 3, SCHEMA_VERSION: 2, SCHEMA_VERSION + 1: 1})

    assert list(reasons.values()) == [5, 1]
