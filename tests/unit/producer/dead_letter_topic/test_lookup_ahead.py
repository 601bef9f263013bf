"""Lookups that answer later ones."""

from __future__ import annotations

from dataclasses import replace

from producer_core.kafka.record_lookup import ProbeResult
from producer_core.producer.dead_letter_topic.lookup_ahead import LookupAhead

FOUND = ProbeResult("found", 0, 7, 9, "The record is on the topic.")
ABSENT = ProbeResult("not_found", None, None, 9, "The record is not on the topic.")
UNKNOWN = ProbeResult("inconclusive", None, None, 0, "No broker is available.", True)


class Topic:
    """Answers lookups, and collects them."""

    def __init__(self, *found, answers=True):
        self.found, self.answers, self.asked = found, answers, []

    def __call__(self, topic, ids, since_ms):
        self.asked.append((topic, sorted(ids), since_ms))
        outcome = {one: FOUND if one in self.found else ABSENT for one in ids}
        return outcome if self.answers else dict.fromkeys(ids, UNKNOWN)


def test_one_reading_answers_for_all_upcoming_dead_letters_of_a_topic():
    topic = Topic("b")
    lookup = LookupAhead(topic, {"dlt": {"a": 5.0, "b": 4.0, "c": 6.0}, "other": {"d": 1.0}})
    assert lookup("dlt", ["a"], 5000) == {"a": ABSENT}
    assert lookup("dlt", ["b", "c"], 4000) == {"b": FOUND, "c": ABSENT}
    assert topic.asked == [("dlt", ["a", "b", "c"], 4000)]


def test_an_answer_is_given_once():
    """A dead letter that was sent since may be on the topic."""
    topic = Topic()
    lookup = LookupAhead(topic, {"dlt": {"a": 5.0, "b": 5.0}})
    lookup("dlt", ["a"], 5000)
    lookup("dlt", ["b"], 5000)
    topic.found = ("a", "b")
    assert lookup("dlt", ["a", "b"], 5000) == {"a": FOUND, "b": FOUND}


def test_a_lookup_that_reads_earlier_records_asks_again():
    topic = Topic()
    lookup = LookupAhead(topic, {"dlt": {"a": 5.0, "b": 5.0}})
    lookup("dlt", ["a"], 5000)
    lookup("dlt", ["b"], 4999)
    assert topic.asked == [("dlt", ["a", "b"], 5000), ("dlt", ["b"], 4999)]


def test_upcoming_dead_letters_that_are_too_old_hide_no_others():
    """A lookup reads at most two million records."""
    topic = Topic("b")
    limited = replace(UNKNOWN, transient=False)

    def probe(name, ids, since_ms):
        found = topic(name, ids, since_ms)
        return found if since_ms >= 5000 else dict.fromkeys(ids, limited)

    lookup = LookupAhead(probe, {"dlt": {"a": 5.0, "b": 5.0, "old": 1.0}})
    assert lookup("dlt", ["b"], 5000) == {"b": FOUND}
    assert topic.asked == [("dlt", ["a", "b", "old"], 1000), ("dlt", ["b"], 5000)]


def test_an_unknown_outcome_is_no_answer():
    topic = Topic(answers=False)
    lookup = LookupAhead(topic, {"dlt": {"a": 5.0, "b": 5.0}})
    assert lookup("dlt", ["a"], 5000) == {"a": UNKNOWN}
    topic.answers = True
    assert lookup("dlt", ["b"], 5000) == {"b": ABSENT}
    assert topic.asked[1] == ("dlt", ["b"], 5000)
