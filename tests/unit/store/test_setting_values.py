"""The settings of a store: their names and their valid values."""

from __future__ import annotations

import math

import pytest

from producer_core.errors import ConfigError
from producer_core.store.setting_values import BOUNDS, KEPT, check


@pytest.mark.parametrize("name", [*KEPT, *BOUNDS])
@pytest.mark.parametrize("value", [1, 3600, 1.5, None, 2**62])
def test_a_number_of_1_or_more_and_the_default_are_valid(name, value):
    check({name: value})


@pytest.mark.parametrize("value", [0, 0.0])
def test_0_removes_a_limit_and_is_refused_as_a_retention(value):
    for name in BOUNDS:
        check({name: value})
    for name in KEPT:
        with pytest.raises(ConfigError, match="must be a number of 1 or more"):
            check({name: value})


@pytest.mark.parametrize("value", [-1, 0.5, True, False, "3600", math.inf, math.nan, 2**63])
def test_any_other_value_is_refused(value):
    for name in (*KEPT, *BOUNDS):
        with pytest.raises(ConfigError, match=f"{name} must be a number of 1 or more, not "):
            check({name: value})


def test_an_unknown_setting_is_refused_with_the_known_ones():
    with pytest.raises(ConfigError, match=r"There is no setting 'dlq_size'.*dlq_max_size"):
        check({"dlq_max_size": 5, "dlq_size": 5})
