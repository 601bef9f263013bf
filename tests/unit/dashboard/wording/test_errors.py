"""Test the texts of the errors page."""

from __future__ import annotations

from dataclasses import replace

import pytest

from producer_core.dashboard.wording import errors as say


@pytest.mark.parametrize(
    ("known", "tone", "text"),
    [
        ({}, "quiet", "No messages sent in the last 5 min."),
        ({"settled": 1}, "good", "No failures in the last 5 min: the only message was acknowledged on the first attempt."),
        ({"settled": 90, "attempts": 4, "saved": 3}, "good",
         "4 failed attempts and no failed messages in the last 5 min: 3 messages were acknowledged after a retry."),
        ({"settled": 90, "attempts": 1}, "quiet", "1 failed attempt and no failed messages in the last 5 min."),
        ({"settled": 1000, "attempts": 4, "dead": 3, "worst": ("X", "orders", "It is too large.", 2)}, "warning",
         "3 of 1,000 messages failed in the last 5 min, most on orders with X: it is too large."),
        ({"settled": 10, "attempts": 4, "dead": 3, "saved": 1, "new": ("X",)}, "bad",
         "3 of 10 messages failed in the last 5 min. 1 message was acknowledged after a retry. New: X."),
    ],
)  # fmt: skip
def test_the_summary_covers_each_state(known, tone, text):
    base = {"settled": 0, "attempts": 0, "saved": 0, "dead": 0}
    assert say.failing(say.FailingSentence("in the last 5 min", **{**base, **known})) == (tone, text)


def test_new_codes_never_have_a_good_tone():
    assert say.failing(say.FailingSentence("now", 10, 1, 1, 0, new=("A", "B", "C", "D"))) == (
        "warning",
        "1 failed attempt and no failed messages now: 1 message was acknowledged after a retry. "
        "New: A, B, C and 1 more.",
    )


def test_the_summary_counts_replayed_and_archived_messages():
    known = say.FailingSentence(
        "in the last hour", 1000, 527, 0, 527, ("POLICY_VIOLATION", "payments", "A policy.", 527)
    )
    assert say.failing(known)[0] == "bad"
    tone, text = say.failing(replace(known, replayed=527))
    assert (tone, text.endswith("a policy. All 527 replayed since.")) == ("good", True)
    tone, text = say.failing(replace(known, replayed=500, archived=1))
    assert (tone, text.endswith("500 replayed and 1 archived since.")) == ("bad", True)
    assert say.failing(replace(known, dead=1, replayed=1))[1].endswith("It has since been replayed.")


def test_a_single_failed_message_is_described_in_the_singular():
    one = say.FailingSentence("now", 10, 1, 0, 1, ("X", "orders", "It is too large.", 1))
    assert say.failing(one)[1] == "1 of 10 messages failed now, on orders with X: it is too large."
    assert "telemetry counts it, but its producer keeps the dead letter" in say.without_dead_letters(1, 1)
    assert "telemetry counts them, but their producers keep" in say.without_dead_letters(2, 3)
