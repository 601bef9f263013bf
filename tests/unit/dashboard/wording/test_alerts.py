"""Test the texts about alerts."""

from __future__ import annotations

import pytest

from producer_core.alerts import RULES, Silence, alert
from producer_core.dashboard import wording
from producer_core.dashboard.wording import alerts as alert_wording
from tests.fixtures.alert_pages import NOW, burning, changed, lost


def sentence(*firing, pending=0, elsewhere=0, evaluated=True):
    return alert_wording.alerts_sentence(firing, pending, elsewhere, evaluated, 34)


@pytest.mark.parametrize(
    ("firing", "more", "tone", "text"),
    [
        ((), {}, "good", "No alerts firing. 34 rules evaluated."),
        ((lost(),), {}, "bad", "1 alert firing."),
        ((lost(), burning()), {"pending": 1}, "bad", "2 alerts firing; 1 pending."),
        ((changed(lost(), acknowledged_by="ada"),), {}, "quiet", "1 alert firing, acknowledged."),
        (
            (changed(lost(), silenced=True),),
            {},
            "quiet",
            "All firing alerts are suppressed; 1 silenced.",
        ),
        (
            (lost(), *[changed(burning(), muted_by="inhibited by connection_lost")] * 2),
            {},
            "bad",
            "1 alert firing; 2 inhibited by connection_lost.",
        ),
        ((alert("dedup_degraded", "p", NOW, reason="x"),), {}, "warning", "1 alert firing."),
        (
            (),
            {"elsewhere": 2},
            "quiet",
            "No alerts firing. 2 more firing outside the current filter.",
        ),
    ],
)
def test_the_summary_sentence_covers_each_situation(firing, more, tone, text):
    assert sentence(*firing, **more) == (tone, text)


def test_an_alert_whose_condition_is_over_omits_its_advice():
    found = {
        "severity": "critical",
        "started_at": NOW - 300,
        "text": "it burns",
        "advice": "Run.",
        "rule": "error_budget_fast",
        "keep_firing_for": 300.0,
    }
    assert wording.alert({**found, "since": None}, NOW) == "Critical for 5 min: it burns. Run."
    assert (
        wording.alert({**found, "since": NOW - 60}, NOW)
        == "Critical for 5 min: it burns. Cleared 60 s ago; resolves in 4 min."
    )


def test_a_missing_evaluator_is_reported_first():
    tone, text = sentence(evaluated=False)

    assert tone == "bad" and text.startswith("Alert evaluation is not running; data may be stale.")


def test_the_next_state_change_is_described():
    rule = RULES["slow_delivery"]
    pending = changed(burning(), state="pending", since=NOW - 60)

    assert alert_wording.next_transition(pending, rule, NOW) == "Fires in 4 min if the condition persists."
    assert alert_wording.next_transition(changed(pending, state="firing"), rule, NOW) == (
        "Condition cleared; resolves in 9 min."
    )
    assert alert_wording.next_transition(
        alert("acknowledged_lost", "t", NOW, text="x"), RULES["acknowledged_lost"], NOW
    ) == ("Fires until acknowledged.")


def test_a_failing_route_shows_its_duration_and_error():
    assert alert_wording.route_state(True, "3 min ago", 2, 0, "HTTP 500") == (
        "bad", "Delivery began failing 3 min ago: HTTP 500. 2 notifications queued.",
    )  # fmt: skip
    assert alert_wording.route_state(True, "", 0, 0, "")[0] == "good"
    assert alert_wording.route_state(False, "", 0, 0, "")[0] == "quiet"


def test_a_silence_of_a_whole_rule_is_described_as_such():
    assert (
        alert_wording.silence_subject(Silence("high_latency", "", NOW, "ada", "", NOW))
        == "high_latency, all subjects"
    )


def test_the_firing_alerts_that_are_not_listed_are_counted():
    assert alert_wording.more_firing(1) == "1 more is firing. Select a topic, or see Rules."
    assert alert_wording.more_firing(2) == "2 more are firing. Select a topic, or see Rules."


@pytest.mark.parametrize("name", RULES)
def test_every_rule_states_its_condition(name):
    text = alert_wording.rule_condition(name, RULES[name])
    assert len(text) > 20 and "reported by" not in text


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("high_error_rate", "more than error_rate_threshold (default 5%) of a producer's messages failed between two "
         "health checks; its end is notified after 5 min"),
        ("slow_delivery", "latency p99 per topic above 10 s over 5 min, for 5 min; resolves 10 min after it clears"),
        ("order_break", "at least 1 message was acknowledged before an earlier one with the same key was retried; "
         "resolves 10 min after the last report"),
        ("fenced", "another process uses the same transactional id; fires until the producer is closed"),
        ("acknowledged_lost", "at least 1 acknowledged record is missing from its partition; fires until acknowledged"),
    ],
)  # fmt: skip
def test_a_condition_says_when_the_alert_resolves(name, text):
    assert alert_wording.rule_condition(name, RULES[name]) == text


@pytest.mark.parametrize(
    ("zone", "hours"),
    [("UTC", 21), ("Europe/Berlin", 20), ("America/New_York", 26), (None, 21)],
)
def test_a_silence_until_tomorrow_ends_at_nine_in_the_zone_of_the_viewer(zone, hours):
    noon = 1_767_096_000.0  # 2025-12-30 12:00 UTC

    assert alert_wording.silence_seconds(alert_wording.UNTIL_TOMORROW, noon, zone) == hours * 3600


def test_a_silence_until_tomorrow_respects_daylight_saving_time():
    evening = 1_774_720_800.0  # 2026-03-28 19:00 in Berlin; the clocks are put forward in the night

    assert alert_wording.silence_seconds(alert_wording.UNTIL_TOMORROW, evening, "Europe/Berlin") == 13 * 3600


def test_each_offered_duration_of_a_silence_has_an_end():
    ends = [alert_wording.silence_seconds(one, NOW, "UTC") for one in alert_wording.SILENCES]

    assert all(0 < end <= 604_800 for end in ends)
