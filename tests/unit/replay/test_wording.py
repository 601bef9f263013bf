"""Texts about a replay: the numbers of newer keys as far as the check read."""

from __future__ import annotations

import pytest

from producer_core.replay.broker_check import TopicCheck
from producer_core.replay.wording import newer_keys

CHECK = {
    "topic": "orders", "records": 4, "bytes": 100, "partitions": 1, "max_message_bytes": None,
    "cleanup_policy": None, "too_large": 0, "newer_keys": 0, "looked_at": 0, "complete": True, "text": "",
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "0"),
        ({"newer_keys": 1_200}, "1,200"),
        ({"newer_keys": 2, "complete": False}, "2 or more"),
        ({"complete": False}, "unknown"),
        ({"scanned": False}, "not checked"),
    ],
)
def test_newer_keys_are_counted_only_on_topics_that_were_checked(changes, text):
    assert newer_keys(TopicCheck(**{**CHECK, **changes})) == text
