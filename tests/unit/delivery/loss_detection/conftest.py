"""A loss monitor with a fake broker and a test clock."""

from __future__ import annotations

import pytest

from tests.fixtures.loss_monitor import MonitorRig


@pytest.fixture
def rig():
    rig = MonitorRig()
    yield rig
    rig.broker.gate.set()
    rig.monitor.stop()
