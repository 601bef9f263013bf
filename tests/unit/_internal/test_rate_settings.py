"""The settings that limit the rate of sends."""

from __future__ import annotations

import re

import pytest

from producer_core._internal.rate_settings import RateLimits, rate_limits
from producer_core.config import client_config
from producer_core.errors import ConfigError


def test_a_number_limits_all_topics_together():
    limits = rate_limits({"max_messages_per_second": 500})

    assert limits == RateLimits({"*": 500.0}, {}, 1.0)


@pytest.mark.parametrize("value", [{"orders": 5, "*": 20}, "orders=5, *=20"])
def test_a_dict_or_a_text_limits_each_topic(value):
    limits = rate_limits({"max_bytes_per_second": value, "rate_limit_burst_ms": "250"})

    assert limits == RateLimits({}, {"orders": 5.0, "*": 20.0}, 0.25)


def test_no_limit_means_no_limiter():
    assert rate_limits({}) is None
    assert client_config("a:1").rate_limits is None


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"max_messages_per_second": 0}, "max_messages_per_second=0 is not a rate"),
        ({"max_messages_per_second": -1}, "is not a rate"),
        ({"max_messages_per_second": True}, "is not a rate"),
        ({"max_messages_per_second": float("inf")}, "is not a rate"),
        ({"max_messages_per_second": float("nan")}, "is not a rate"),
        ({"max_messages_per_second": 10**400}, "is not a rate"),
        ({"max_bytes_per_second": "fast"}, "max_bytes_per_second='fast' is not a rate"),
        ({"max_bytes_per_second": "orders=5,7"}, "'7' is not topic=number"),
        ({"max_bytes_per_second": {"orders": None}}, "None is not a rate"),
        ({"max_bytes_per_second": {3: 5}}, "3 is not a topic name"),
        ({"max_bytes_per_second": [5]}, "is not a rate"),
        ({"max_messages_per_second": 5, "rate_limit_burst_ms": -1}, "rate_limit_burst_ms=-1 is not"),
        ({"rate_limit_burst_ms": 100}, "without a rate limit"),
    ],
)
def test_a_value_that_is_not_valid_is_refused(settings, text):
    with pytest.raises(ConfigError, match="(?s)" + text.replace("*", r"\*")):
        client_config("a:1", settings)


def test_the_settings_are_accepted_with_dots_and_do_not_reach_the_client():
    config = client_config("a:1", {"max.messages.per.second": "100"})

    assert config.rate_limits == RateLimits({"*": 100.0}, {}, 1.0)
    assert not [name for name in config.settings if "per.second" in name or "per_second" in name]


@pytest.mark.parametrize("topic", ["or ders", "a" * 300, "", ".", "orders/eu"])
def test_a_limit_of_a_name_that_no_topic_can_have_is_refused(topic):
    with pytest.raises(ConfigError, match=r"is not a topic name.*1 to 249 characters"):
        rate_limits({"max_messages_per_second": {topic: 5}})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("orders=1,orders=2", "has two limits for 'orders'"),
        ("*=1, *=2", r"has two limits for '\*'"),
        ("orders=", "'orders=' is not topic=number"),
        ("=5", "'=5' is not topic=number"),
        ("or ders=5", "'or ders' is not a topic name"),
    ],
)
def test_a_text_with_a_mistake_is_refused(text, message):
    with pytest.raises(ConfigError, match=message):
        rate_limits({"max_bytes_per_second": text})


@pytest.mark.parametrize("text", ["x", "orders=", "orders=x"])
def test_the_advice_for_a_text_is_a_text_that_works(text):
    with pytest.raises(ConfigError) as refused:
        rate_limits({"max_messages_per_second": text})

    example = re.search(r"one per topic: (\S+)\.", refused.value.fix)[1]
    assert rate_limits({"max_messages_per_second": example}).messages == {"orders": 500.0, "*": 2000.0}
