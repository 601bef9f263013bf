"""Slices of a store's dead letters: what is sent, and which events and verdicts remain."""

from __future__ import annotations

import json
import time

import pytest

from producer_core.delivery.reports import ReplayResult
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.dlq.published_verdict import without_safe_verdict
from producer_core.dlq.timeline import timeline
from producer_core.dlq.topics.slice_publisher import PublicationEvents, SlicePublisher
from producer_core.dlq.topics.topic_sender import TopicSender
from producer_core.errors import ReplayError
from producer_core.events import SAFE_VERDICTS
from producer_core.kafka.record_lookup import ProbeResult
from tests.fixtures.edits import add, edit, fields, json_dead_letter
from tests.fixtures.replays import dead_letter

NOT_FOUND = ProbeResult("not_found", None, None, 0, "The record is not on the topic.")
FOUND = ProbeResult("found", 0, 7, 1, "The record is on the topic.")


class Client:
    """Acknowledges every record, or fails it."""

    def __init__(self, outcome="acknowledged"):
        self.outcome = outcome
        self.sent, self.values = [], []

    def resend(self, record, settled):
        self.sent.append(record.message_id)
        self.values.append(record.value)
        settled(ReplayResult(record.message_id, self.outcome, 0, len(self.sent)))

    def close(self, timeout=0.0):
        pass


@pytest.fixture
def failed(store):
    dead = dead_letter(1)
    DeadLetters(store).add([dead])
    return dead.message_id


def publish(
    store, client, message_id, *, probe=lambda topic, ids, since: {}, renew=lambda: None, doubtful=()
):
    events = PublicationEvents(store, who="ann", origin="producer", clock=time.time)
    sender = TopicSender(probe=probe, while_waiting=renew)
    publisher = SlicePublisher(events, sender, only_dead=True, resend_unknown=True)
    return publisher.publish(
        client, {message_id: "orders-dlt"}, may_have_started=dict.fromkeys(doubtful, 0.0)
    )


def events(store, message_id):
    return [one.what for one in timeline(store, message_id) if "publish" in one.what]


def test_a_dead_letter_that_fails_again_and_again_has_one_event(store, failed):
    for _ in range(3):
        publish(store, Client("failed"), failed)
    assert events(store, failed) == ["publishing"]

    publish(store, Client(), failed)
    assert events(store, failed) == ["publishing", "published"]


def test_a_dead_letter_that_is_archived_during_the_lookup_is_not_sent(store, failed):
    def archive(topic, ids, since):
        DeadLetters(store).archive(DeadLetterFilter(), who="ann", origin="python")
        return dict.fromkeys(ids, NOT_FOUND)

    client = Client()
    result = publish(store, client, failed, probe=archive, doubtful=[failed])

    assert (client.sent, result.left_out) == ([], (failed,))
    assert events(store, failed) == []


def test_a_dead_letter_that_an_earlier_run_published_has_no_safe_verdict(store, failed):
    client = Client()
    publish(
        store, client, failed, probe=lambda topic, ids, since: dict.fromkeys(ids, FOUND), doubtful=[failed]
    )

    assert client.sent == []
    assert [one.verdict for one in DeadLetters(store).find(DeadLetterFilter())] == ["possibly_persisted"]


def test_nothing_is_sent_after_the_lease_is_lost(store, failed):
    def lost():
        raise ReplayError("The lease expired.")

    client = Client()
    with pytest.raises(ReplayError):
        publish(store, client, failed, renew=lost)
    assert client.sent == []


def test_a_dead_letter_that_another_process_published_during_the_lookup_is_not_sent(store, failed):
    """Regression: the lease ended during the lookup, another process published, and this one took the lease again."""

    def published_elsewhere(topic, ids, since):
        publish(store, Client(), failed)
        return dict.fromkeys(ids, NOT_FOUND)

    client = Client()
    result = publish(store, client, failed, probe=published_elsewhere, doubtful=[failed])

    assert (client.sent, result.left_out) == ([], (failed,))
    assert events(store, failed) == ["publishing", "published"]


def test_the_lease_is_renewed_after_a_lookup(store, failed):
    steps = []

    def look(topic, ids, since):
        steps.append("lookup")
        return dict.fromkeys(ids, NOT_FOUND)

    publish(store, Client(), failed, probe=look, renew=lambda: steps.append("renewed"), doubtful=[failed])
    assert steps[:2] == ["lookup", "renewed"]


def test_a_published_dead_letter_that_fails_again_has_no_safe_verdict(store, failed):
    """Regression: a journal sent the message again after a crash, and it failed with a safe verdict."""
    publish(store, Client(), failed)
    again = dead_letter(1, failed_at=2_000.0, verdict="rejected")
    DeadLetters(store).add([again])
    assert [one.verdict for one in DeadLetters(store).find(DeadLetterFilter())] == ["possibly_persisted"]


def test_of_two_versions_of_one_failure_the_doubtful_verdict_is_kept(store, failed):
    """Regression: a dead letter that was spilled, published and spilled again kept its first verdict."""
    first = dead_letter(1)
    assert first.verdict in SAFE_VERDICTS
    DeadLetters(store).add([without_safe_verdict(first)])
    assert [one.verdict for one in DeadLetters(store).find(DeadLetterFilter())] == ["possibly_persisted"]
    DeadLetters(store).add([first])
    assert [one.verdict for one in DeadLetters(store).find(DeadLetterFilter())] == ["possibly_persisted"]


def test_an_edited_dead_letter_is_published_as_its_revision(store):
    (one,) = add(store, json_dead_letter(1))
    edit(store, fields({"amount": 7}), one)
    client = Client()

    publish(store, client, one)

    assert [json.loads(value)["amount"] for value in client.values] == [7]
    assert edit(
        store, fields({"amount": 8}), one
    ).replacements  # a reader of the topic may have sent the first edit


def test_an_original_that_an_edit_replaces_is_not_published(store):
    (one,) = add(store, json_dead_letter(1, verdict="possibly_persisted"))
    client = Client()

    def edited(topic, ids, since):  # during the lookup, after the dead letter was read
        edit(store, fields({"amount": 7}), one)
        return dict.fromkeys(ids, NOT_FOUND)

    result = publish(store, client, one, probe=edited, doubtful=[one])

    assert client.sent == [] and result.left_out == (one,)


def test_an_edit_during_the_lookup_is_published_instead_of_the_original(store):
    (one,) = add(store, json_dead_letter(1))
    client = Client()

    def edited(topic, ids, since):
        edit(store, fields({"amount": 7}), one)
        return dict.fromkeys(ids, NOT_FOUND)

    publish(store, client, one, probe=edited, doubtful=[one])

    assert [json.loads(value)["amount"] for value in client.values] == [7]
