"""Settings that a transactional client rejects."""

from __future__ import annotations

import pytest

from producer_core.delivery.exactly_once.transactional_client import check_settings
from producer_core.delivery.exactly_once.transactional_transport import transactional_settings
from producer_core.errors import ConfigError


def test_settings_that_exclude_transactions_are_rejected_at_once():
    with pytest.raises(ConfigError, match=r"max\.in\.flight"):
        check_settings(transactional_settings({"max.in.flight.requests.per.connection": 50}))
