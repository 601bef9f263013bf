"""Slices of a store's dead letters: what is sent, and which events and verdicts remain."""

from __future__ import annotations

import time

import pytest

from producer_core.delivery.reports import ReplayResult
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.dlq.timeline import timeline
from producer_core.dlq.topics.slice_publisher import PublicationEvents, SlicePublisher
from producer_core.dlq.topics.topic_sender import TopicSender
from producer_core.errors import ReplayError
from producer_core.kafka.record_lookup import ProbeResult
from tests.fixtures.replays import dead_letter

NOT_FOUND = ProbeResult("not_found", None, None, 0, "The record is not on the topic.")
FOUND = ProbeResult("found", 0, 7, 1, "The record is on the topic.")


class Client:
    """Acknowledges every record, or fails it."""

    def __init__(self, outcome="acknowledged"):
        self.outcome = outcome
        self.sent = []

    def resend(self, record, settled):
        self.sent.append(record.message_id)
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
