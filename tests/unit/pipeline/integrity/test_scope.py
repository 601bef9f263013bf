"""The scope of an audit."""

from __future__ import annotations

import pytest

from producer_core.errors import ConfigError
from producer_core.pipeline.integrity.scope import AuditScope


@pytest.mark.parametrize(
    "wrong",
    [
        {"since": 1.0, "incremental": True},
        {"from_offsets": {0: 1}, "since": 1.0},
        {"incremental": True, "until": 2.0},
        {"since": 2.0, "until": 2.0},
        {"isolation": "serializable"},
    ],
)
def test_a_contradictory_scope_is_rejected(wrong):
    with pytest.raises(ConfigError):
        AuditScope(**wrong)
