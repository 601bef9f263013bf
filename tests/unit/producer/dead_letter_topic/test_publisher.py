"""The thread that publishes dead letters, and its end."""

from __future__ import annotations

import threading

import pytest

from producer_core.errors import ProducerClosed
from producer_core.producer.dead_letter_topic import publisher
from producer_core.producer.dead_letter_topic.publisher import DONE, DeadLetterPublisher
from producer_core.producer.dead_letter_topic.publishing_client import PublishingClient
from tests.fixtures.dead_letter_topics import send
from tests.support import eventually


class LateSource:
    """Opens the client only when the publisher has been stopped."""

    def __init__(self):
        self.begun, self.proceed, self.refused = threading.Event(), threading.Event(), threading.Event()

    def publish_next(self, producer):
        self.begun.set()
        self.proceed.wait(30)
        try:
            producer()
        except ProducerClosed:
            self.refused.set()
        return DONE


class OpeningSource:
    """Opens the client at once."""

    def publish_next(self, producer):
        producer()
        return DONE


class SilentClient:
    """Accepts dead letters and never reports their outcomes."""

    def __init__(self):
        self.accepted, self.closed = threading.Event(), threading.Event()

    def resend(self, dead_letter, settled):
        self.accepted.set()

    def close(self, timeout=10.0):
        self.closed.set()


def publisher_thread():
    return next(one for one in threading.enumerate() if one.name == "dead-letter-publisher")


def test_no_client_is_opened_after_the_stop():
    source, opened = LateSource(), []
    stopped = DeadLetterPublisher(source, lambda: opened.append(1))
    stopped.start()
    assert source.begun.wait(30)
    stopped.stop(timeout=0.0)
    source.proceed.set()
    assert source.refused.wait(30)
    assert opened == []


def test_a_stop_does_not_wait_for_a_client_that_is_being_opened_and_the_client_is_closed():
    opening, proceed, client = threading.Event(), threading.Event(), SilentClient()

    def open_producer():
        opening.set()
        proceed.wait(60)
        return client

    stopped = DeadLetterPublisher(OpeningSource(), open_producer)
    stopped.start()
    assert opening.wait(30)
    stop = threading.Thread(target=stopped.stop, args=(0.0,), daemon=True)
    stop.start()
    stop.join(30)
    waits = stop.is_alive()
    proceed.set()
    assert not waits
    assert client.closed.wait(30)


@pytest.mark.parametrize("available", [True, False])
def test_the_thread_ends_although_its_client_never_reports(cluster, store, monkeypatch, available):
    client = SilentClient()
    monkeypatch.setattr(PublishingClient, "open_producer", lambda self: client)
    producer = cluster.producer(store)
    thread = publisher_thread()
    if not available:
        backend = producer._components.dead_letter_backend
        monkeypatch.setattr(backend._access, "use", lambda work, part: False)
        monkeypatch.setattr(backend._access, "trouble", "locked")
        monkeypatch.setattr(backend._access, "_failing", {"dead letters"})
    send(producer, 1)
    assert client.accepted.wait(30)
    producer.close(timeout=0.5)
    thread.join(30)
    assert not thread.is_alive()


def topic_by_value(dead_letter):
    return "missing" if dead_letter.value == b"0" else "all-dead"


def test_dead_letters_of_ended_producers_that_fail_do_not_delay_a_close(cluster, store, monkeypatch):
    monkeypatch.setattr(publisher, "_PAUSES", (0.05,))
    cluster.denied |= {"missing", "all-dead"}
    ended = cluster.producer(store, dead_letter_topic=topic_by_value)
    send(ended, 1)
    ended.flush()
    ended.close(timeout=0.5)
    producer = cluster.producer(store, cluster_id="in-memory", dead_letter_topic=topic_by_value)
    publishing = producer._components.dead_letter_backend._publishing
    eventually(lambda: ended.identity in publishing._stored._producers)
    own = producer.send_message("orders", b"9")
    eventually(lambda: producer.dlq.count() == 2)
    cluster.denied.discard("all-dead")

    stop = threading.Thread(target=publishing.stop, args=(600.0,), daemon=True)
    stop.start()
    stop.join(60)
    assert not stop.is_alive()
    assert (cluster.ids("all-dead"), cluster.ids("missing")) == ([own], [])
    producer.close()
