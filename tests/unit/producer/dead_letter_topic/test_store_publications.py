"""Publication from a store, and of what was published before the store had it."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import pytest

from producer_core import DeadLetterTopic
from producer_core.config import client_config
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.dlq.topics import publisher as topics_publisher
from producer_core.dlq.topics.slice_publisher import PublicationEvents, SlicePublisher
from producer_core.errors import StoreLocked
from producer_core.events import Attempt
from producer_core.kafka.record_lookup import ProbeResult
from producer_core.producer.dead_letter_topic import publisher, store_publications
from producer_core.producer.dead_letter_topic.publisher import Round
from producer_core.producer.dead_letter_topic.publishing_client import PublishingClient
from producer_core.producer.dead_letter_topic.store_publications import PublicationOwner
from producer_core.producer.dead_letter_topic.store_publishing import StorePublishing
from producer_core.producer.dead_letter_topic.unrecorded_publications import UnrecordedPublications
from producer_core.store import Store
from tests.fixtures.dead_letter_topics import events, send
from tests.fixtures.replays import dead_letter
from tests.support import eventually

FOUND = ProbeResult("found", 0, 7, 1, "The record is on the topic.")
ABSENT = ProbeResult("not_found", None, None, 1, "The record is not on the topic.")


def publishing_of(dead_letter):
    return f"{dead_letter.topic}-dlt"


def publishing_with(*, store, trouble):
    """Return a publisher that is not started."""
    client = PublishingClient(
        DeadLetterTopic(), client_config("nowhere:9092", {}), open=None, has_broker=False
    )
    owner = PublicationOwner("p", 0.0, None, cluster=lambda: "", clock=time.time)
    unused = {"spilled": lambda: False, "published": lambda ids: None}
    return StorePublishing(client, owner, store=store, trouble=trouble, limit=10, **unused)


@pytest.mark.parametrize("fails", ["missing", "no topic name"])
def test_old_dead_letters_that_cannot_be_published_hide_no_later_ones(cluster, store, monkeypatch, fails):
    """There are more of them than one listing has rows."""
    monkeypatch.setattr(store_publications, "_LISTING_ROWS", 2)
    monkeypatch.setattr(store_publications, "_LISTINGS", 1)
    monkeypatch.setattr(publisher, "_PAUSES", (0.05,))
    cluster.denied.add("missing")

    def choose(dead_letter):
        return "all-dead" if dead_letter.value == b"9" else fails

    with cluster.producer(store, dead_letter_topic=choose) as producer:
        sent = send(producer, 10)
        eventually(lambda: cluster.ids("all-dead") == [sent[9]])
        cluster.denied.discard("missing")
        if fails == "missing":
            eventually(lambda: sorted(cluster.ids("missing")) == sorted(sent[:9]))


def test_a_failed_dead_letter_is_tried_again_although_the_store_fails_behind_it(cluster, store, monkeypatch):
    monkeypatch.setattr(publisher, "_PAUSES", (0.05,))
    monkeypatch.setattr(topics_publisher, "SLICE", 2)
    bodies, failures = DeadLetters.bodies, []

    def failing_once(self, ids):
        if sent[1:] and sent[1] in cluster.ids("all-dead") and sent[2] in ids and not failures:
            failures.append(ids)
            raise StoreLocked
        return bodies(self, ids)

    sent = []
    cluster.denied |= {"missing", "all-dead"}
    monkeypatch.setattr(DeadLetters, "bodies", failing_once)
    choose = lambda dead_letter: "missing" if dead_letter.value == b"0" else "all-dead"  # noqa: E731
    with cluster.producer(store, dead_letter_topic=choose) as producer:
        sent += send(producer, 4)
        eventually(lambda: producer.dlq.count() == 4)
        cluster.denied.discard("all-dead")
        eventually(lambda: failures and sorted(cluster.ids("all-dead")) == sent[1:])
        cluster.denied.discard("missing")
        eventually(lambda: cluster.ids("missing") == [sent[0]], timeout=15)


def test_a_publication_reads_the_store_no_longer_than_other_readers(cluster, store, monkeypatch):
    """Regression: its queries were cancelled after 60 seconds, during which the recorder and other processes waited."""
    limits, borrow = [], Store.borrow

    def spy(self, *, limit=None, **options):
        if threading.current_thread().name == "dead-letter-publisher":
            limits.append(limit)
        return borrow(self, limit=limit, **options)

    monkeypatch.setattr(Store, "borrow", spy)
    with cluster.producer(store, cluster_id="in-memory") as producer:
        sent = send(producer, 3)
        eventually(lambda: cluster.ids("orders-dlt") == sent)
    assert len(limits) > 5
    assert set(limits) == {None}


def test_dead_letters_of_a_burst_are_sent_together(cluster, store, monkeypatch):
    """Regression: the first of a burst was sent alone, with a look into the store and a lease of its own."""
    rounds, publish = [], SlicePublisher.publish

    def spy(self, producer, targets, **options):
        rounds.append(len(targets))
        return publish(self, producer, targets, **options)

    monkeypatch.setattr(SlicePublisher, "publish", spy)
    monkeypatch.setattr(publisher, "_COLLECT_S", 3600.0)
    monkeypatch.setattr(publisher, "_REST_S", 0.0)
    with cluster.producer(store, cluster_id="in-memory") as producer:
        publishing = producer._components.dead_letter_backend._publishing
        eventually(lambda: publishing._stored._since > 0)  # the first look has ended
        for _ in range(3):
            send(producer, 1)
            producer.flush()
            eventually(lambda: not producer._components.dead_letter_backend.waiting())
    assert rounds == [3]


def test_a_dead_letter_that_is_refused_is_logged(cluster, store, caplog):
    def choose(dead_letter):
        raise KeyError("tenant")

    with cluster.producer(store, dead_letter_topic=choose) as producer:
        send(producer, 2)
    assert any("cannot be published" in text and "tenant" in text for text in caplog.messages)


def test_a_dead_letter_of_an_earlier_process_is_looked_for_since_its_first_failure(
    cluster, store, monkeypatch
):
    """A killed process may have published it without a record, and a replay by this producer has failed since."""
    asked = []

    def probe(topic, ids, since_ms):
        asked.append((topic, list(ids), since_ms))
        return dict.fromkeys(ids, FOUND)

    monkeypatch.setattr(PublishingClient, "_lookup", property(lambda self: probe))
    with cluster.producer(store) as producer:
        again = Attempt(time.time(), "POLICY_VIOLATION", "")
        dead = dead_letter(
            1,
            producer_id=producer.identity,
            failed_at=again.failed_at,
            cluster_id="in-memory",
            accepted_at=999.0,
        )
        DeadLetters(store).add([replace(dead, attempts=(*dead.attempts, again))])
        producer._components.dead_letter_backend._publishing.stored()
        eventually(lambda: events(store, dead.message_id) == [("published", "at orders-dlt[0]@7")])
    assert asked == [("orders-dlt", [dead.message_id], 999_000)]
    assert cluster.ids("orders-dlt") == []


@pytest.mark.parametrize("chosen", ["{topic}-dlt", publishing_of])
def test_the_dead_letters_of_an_earlier_process_are_looked_for_together(cluster, store, monkeypatch, chosen):
    """Regression: each slice read the topic again, with the records of all earlier slices."""
    monkeypatch.setattr(topics_publisher, "SLICE", 10)
    asked = []

    def probe(topic, ids, since_ms):
        asked.append(list(ids))
        on_topic = {*cluster.ids(topic), dead[35].message_id}
        return {one: FOUND if one in on_topic else ABSENT for one in ids}

    monkeypatch.setattr(PublishingClient, "_lookup", property(lambda self: probe))
    with cluster.producer(store, cluster_id="in-memory", dead_letter_topic=chosen) as producer:
        dead = [
            dead_letter(number, producer_id=producer.identity, cluster_id="in-memory", failed_at=time.time())
            for number in range(100)
        ]
        DeadLetters(store).add(dead)
        producer._components.dead_letter_backend._publishing.stored()
        eventually(lambda: len(cluster.ids("orders-dlt")) == 99)
    ids = [one.message_id for one in dead]
    assert cluster.ids("orders-dlt") == ids[:35] + ids[36:]
    assert events(store, ids[35]) == [("published", "at orders-dlt[0]@7")]
    assert sorted(asked[0]) == sorted(ids) if isinstance(chosen, str) else len(asked) == 10
    assert len(asked) == (1 if isinstance(chosen, str) else 10)


def test_a_dead_letter_that_may_be_in_flight_is_looked_for_directly_before_it_is_sent(
    cluster, store, monkeypatch
):
    """A broker may append what a killed process sent after an earlier lookup."""
    monkeypatch.setattr(topics_publisher, "SLICE", 1)
    asked = []

    def probe(topic, ids, since_ms):
        asked.append(sorted(ids))
        late = {dead[2].message_id} if cluster.ids(topic) else set()
        return {one: FOUND if one in late else ABSENT for one in ids}

    monkeypatch.setattr(PublishingClient, "_lookup", property(lambda self: probe))
    with cluster.producer(store, cluster_id="in-memory") as producer:
        dead = [
            dead_letter(number, producer_id=producer.identity, cluster_id="in-memory", failed_at=time.time())
            for number in range(4)
        ]
        ids = [one.message_id for one in dead]
        killed = PublicationEvents(store, who="killed", origin="producer", clock=time.time)
        killed.add("publishing", {ids[2]: "to orders-dlt"})
        DeadLetters(store).add(dead)
        producer._components.dead_letter_backend._publishing.stored()
        eventually(lambda: events(store, ids[3]))
    assert asked == [[ids[0], ids[1], ids[3]], [ids[2]]]
    assert cluster.ids("orders-dlt") == [ids[0], ids[1], ids[3]]
    assert events(store, ids[2])[-1] == ("published", "at orders-dlt[0]@7")


def test_a_dead_letter_that_the_recorder_adds_while_the_store_becomes_available_is_not_forgotten():
    dead, added = dead_letter(1), []

    def trouble():
        if not added:
            added.append(dead)
            publishing.unstored(added)

    publishing = publishing_with(store=lambda: None, trouble=trouble)
    publishing.publish_next(lambda: None)
    assert dead.message_id in publishing._direct


def test_an_unavailable_store_is_not_waited_for():
    """Regression: a store that another program had locked delayed those in memory by 10 seconds each time."""
    asked = []
    publishing = publishing_with(store=lambda: asked.append(1), trouble=lambda: "locked")
    assert publishing.publish_next(lambda: None) == Round(soon=True)
    assert asked == []


def test_a_store_that_fails_without_trouble_of_the_recorder_is_an_error():
    def locked():
        raise StoreLocked

    with pytest.raises(StoreLocked):
        publishing_with(store=locked, trouble=lambda: None).publish_next(lambda: None)


@pytest.mark.parametrize(("cluster_id", "published"), [("in-memory", True), ("", True), ("another", False)])
def test_dead_letters_of_another_cluster_are_left_to_its_producers(cluster, store, cluster_id, published):
    """Regression: after a journal was moved to another cluster, its dead letters were published there."""
    with cluster.producer(store) as producer:
        dead = dead_letter(1, producer_id=producer.identity, cluster_id=cluster_id, failed_at=time.time())
        DeadLetters(store).add([replace(dead, accepted_at=time.time())])
        (last,) = send(producer, 1)
        eventually(lambda: last in cluster.ids("orders-dlt"))
        producer._components.dead_letter_backend._publishing.stored()
        if published:
            eventually(lambda: dead.message_id in cluster.ids("orders-dlt"))
    assert (dead.message_id in cluster.ids("orders-dlt")) is published


def test_a_message_that_a_journal_sends_again_is_looked_for_before_it_is_published(
    cluster, store, monkeypatch
):
    """Regression: its only attempts were later than the start, so a publication from memory was repeated."""
    monkeypatch.setattr(
        PublishingClient,
        "_lookup",
        property(lambda self: lambda topic, ids, since_ms: dict.fromkeys(ids, FOUND)),
    )
    with cluster.producer(store) as producer:
        dead = dead_letter(1, producer_id=producer.identity, cluster_id="in-memory", failed_at=time.time())
        now = Attempt(time.time(), "POLICY_VIOLATION", "")
        DeadLetters(store).add([replace(dead, accepted_at=producer.started_at - 5, attempts=(now,))])
        producer._components.dead_letter_backend._publishing.stored()
        eventually(lambda: events(store, dead.message_id) == [("published", "at orders-dlt[0]@7")])
    assert cluster.ids("orders-dlt") == []


def test_a_publication_is_remembered_until_the_store_has_the_dead_letter(store):
    dead = dead_letter(1)
    unrecorded = UnrecordedPublications(time.time)
    unrecorded.add({dead.message_id: "at orders-dlt[0]@0"})
    to_record = PublicationEvents(store, who="p", origin="producer", clock=time.time)

    unrecorded.record(to_record)
    assert dead.message_id in unrecorded and events(store, dead.message_id) == []

    DeadLetters(store).add([dead])
    unrecorded.record(to_record)
    assert dead.message_id not in unrecorded
    assert events(store, dead.message_id) == [("published", "at orders-dlt[0]@0")]
    assert [one.verdict for one in DeadLetters(store).find(DeadLetterFilter())] == ["possibly_persisted"]


def test_publications_above_the_limit_are_looked_for_on_the_topic():
    unrecorded = UnrecordedPublications(lambda: 5.0, limit=1)
    unrecorded.add({"a": "at orders-dlt[0]@0"})
    assert unrecorded.unknown_until == float("-inf")
    unrecorded.add({"b": "at orders-dlt[0]@1"})
    assert "b" not in unrecorded and unrecorded.unknown_until == 5.0
