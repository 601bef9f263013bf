"""The rule for the names of topics."""

from __future__ import annotations

import pytest

from producer_core._internal.topic_names import is_topic_name


@pytest.mark.parametrize("name", ["orders", "a", "a" * 249, "eu.Orders_2-x", "..."])
def test_a_name_that_kafka_accepts(name):
    assert is_topic_name(name)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a" * 250, "or ders", "orders\n", "örders", "*", None, 3, b"orders"]
)
def test_a_name_that_kafka_refuses(name):
    assert not is_topic_name(name)
