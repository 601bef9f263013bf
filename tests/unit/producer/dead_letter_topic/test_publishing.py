"""Producers that publish their dead letters, on a simulated cluster."""

from __future__ import annotations

import contextlib
import functools
import shutil
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest

from producer_core import DeadLetterTopic, MessageStatus, ReliableKafkaProducer
from producer_core.alerts import AlertLog
from producer_core.dlq import DeadLetterFilter
from producer_core.errors import ConfigError, QueueFull
from producer_core.producer.dead_letter_topic import publisher
from producer_core.producer.dead_letter_topic.publisher import Round
from producer_core.testing import InMemoryTransport
from tests.fixtures.dead_letter_topics import events, send
from tests.support import eventually


def is_file_in_place_of(folder):
    """Put a file in the place of a folder, which a thread of the producer may just have created again."""
    shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(IsADirectoryError):
        folder.write_text("no longer a folder")
    return folder.is_file()


def without_disk(cluster, tmp_path, **options):
    """Return a producer whose store and spill file cannot be written."""
    folder = tmp_path / "state"
    producer = cluster.producer(folder / "store.duckdb", **options)
    folder.rename(tmp_path / "away")
    eventually(lambda: is_file_in_place_of(folder))
    return producer


def searched(producer):
    """Whether the producer has looked for dead letters of ended producers."""
    return producer._components.dead_letter_backend._publishing._stored._searched_at > 0


def publishing_of(dead_letter):
    return "all-dead"


class Topics:
    def choose(self, dead_letter):
        return "all-dead"

    __call__ = choose


def test_each_dead_letter_is_published_once_and_stays_a_dead_letter(cluster, store):
    with cluster.producer(store) as producer:
        sent = send(producer, 50)
        producer.flush()
        eventually(lambda: len(cluster.ids("orders-dlt")) == 50)
        assert len(producer.get_dlq_messages("orders")) == 50

    assert cluster.ids("orders-dlt") == sent, "in order, each once"
    assert len(cluster.transports) == 2, "the dead letters have a client of their own"


def test_a_publication_is_an_event_of_the_dead_letter(cluster, store):
    with cluster.producer(store) as producer:
        (message_id,) = send(producer, 1)

    assert events(store, message_id) == [("publishing", "to orders-dlt"), ("published", "at orders-dlt[0]@0")]


def test_a_published_dead_letter_has_no_safe_verdict(cluster, store):
    """A reader of the dead-letter topic may replay it."""
    with cluster.producer(store) as producer:
        cluster.code = "POLICY_VIOLATION"
        send(producer, 1)
        eventually(lambda: [one.verdict for one in producer.dlq.find()] == ["possibly_persisted"])
    published = dict(cluster.transports[1].log["orders-dlt"][0].headers)
    assert published["dlq.delivery.verdict"] == b"rejected"


def test_the_verdict_changes_before_a_dead_letter_is_sent(cluster, store):
    cluster.code = "POLICY_VIOLATION"
    cluster.held.add("orders-dlt")
    with cluster.producer(store) as producer:
        send(producer, 1)
        eventually(lambda: len(cluster.transports) == 2 and cluster.transports[1].held)
        assert [one.verdict for one in producer.dlq.find()] == ["possibly_persisted"]
        cluster.release()


def test_a_producer_without_dead_letters_opens_no_second_client(cluster, store):
    with cluster.producer(store) as producer:
        producer.send_message("others", b"good")
        producer.flush()
    assert len(cluster.transports) == 1


def test_a_producer_without_the_option_has_no_thread_and_loads_no_module_for_it():
    code = (
        "import sys, threading\n"
        "from producer_core import ReliableKafkaProducer\n"
        "from producer_core.testing import InMemoryTransport\n"
        "producer = ReliableKafkaProducer('nowhere:9092', store=None, transport=InMemoryTransport.factory())\n"
        "assert not [one for one in threading.enumerate() if 'publisher' in one.name]\n"
        "assert not [name for name in sys.modules if 'dead_letter_topic' in name]\n"
        "producer.close()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_publication_that_fails_is_no_dead_letter_and_is_tried_again(cluster, store):
    cluster.denied.add("orders-dlt")
    with cluster.producer(store) as producer:
        sent = send(producer, 3)
        eventually(lambda: len(cluster.transports) == 2 and cluster.transports[1].outstanding() == 0)
        assert producer.get_stats()["messages_failed"] == 3
        assert not any(topic.endswith("-dlt-dlt") for one in cluster.transports for topic in one.log)
        cluster.denied.discard("orders-dlt")
        eventually(lambda: sorted(cluster.ids("orders-dlt")) == sorted(sent))

    assert sorted(cluster.ids("orders-dlt")) == sorted(sent)


def test_a_dead_letter_that_does_not_fit_its_topic_does_not_hold_up_the_others(cluster, store):
    cluster.unfit = b"1"
    with cluster.producer(store) as producer:
        sent = send(producer, 3)
        eventually(lambda: len(cluster.ids("orders-dlt")) == 2)
        assert len(producer.get_dlq_messages("orders")) == 3

    assert cluster.ids("orders-dlt") == [sent[0], sent[2]]
    assert events(store, sent[1])[-1][0] == "not published"


def test_a_function_that_raises_leaves_the_dead_letter_in_the_store(cluster, store):
    def choose(dead_letter):
        if dead_letter.value == b"1":
            raise KeyError("tenant")
        return "all-dead"

    with cluster.producer(store, dead_letter_topic=choose) as producer:
        sent = send(producer, 3)
        eventually(lambda: len(cluster.ids("all-dead")) == 2)

    assert events(store, sent[1]) == [("not published", "dead_letter_topic failed: KeyError: 'tenant'")]


def test_the_function_and_the_publication_run_on_no_thread_of_the_delivery(cluster, store):
    threads = []

    def choose(dead_letter):
        threads.append(threading.current_thread().name)
        return "all-dead"

    with cluster.producer(store, dead_letter_topic=choose) as producer:
        send(producer, 3)
    assert set(threads) == {"dead-letter-publisher"}


def test_a_cleared_dead_letter_is_not_published(cluster, store, caplog):
    cluster.denied.add("orders-dlt")
    with cluster.producer(store) as producer:
        send(producer, 3)
        eventually(lambda: any("wait for their topic" in text for text in caplog.messages))
        assert producer.clear_dlq("orders") == 3
        cluster.denied.discard("orders-dlt")
        (last,) = send(producer, 1)
        producer.flush()
    assert cluster.ids("orders-dlt") == [last]


def test_from_env_reads_the_topic(cluster, store, monkeypatch):
    monkeypatch.setenv("PRODUCER_CORE_DEAD_LETTER_TOPIC", "dead-{topic}")
    factory = InMemoryTransport.factory(cluster.transports, script=cluster._outcome)
    with ReliableKafkaProducer.from_env(
        {"bootstrap.servers": "nowhere:9092"}, store=store, transport=factory
    ) as producer:
        sent = send(producer, 2)
    assert cluster.ids("dead-orders") == sent


# while the store is not available


def test_published_dead_letters_make_room_for_others(cluster, tmp_path):
    with without_disk(cluster, tmp_path, dlq_max_size=3) as producer:
        sent = [producer.send_message("orders", b"x", max_block_ms=30_000) for _ in range(12)]
        eventually(lambda: len(cluster.ids("orders-dlt")) == 12)
        assert producer.send_message("others", b"good", max_block_ms=30_000)
        producer.flush()
        (tmp_path / "state").unlink()
        (tmp_path / "away").rename(tmp_path / "state")
        eventually(lambda: {producer.get_message_status(one) for one in sent} == {MessageStatus.DLQ})
        report = producer.close()

    assert sorted(cluster.ids("orders-dlt")) == sorted(sent)
    assert report.lost == 0


def test_dead_letters_that_only_their_topic_has_are_not_logged_as_lost(cluster, tmp_path, caplog):
    """Regression: a critical line counted them, and those that were published after it."""
    cluster.held.add("orders-dlt")  # in flight until the recorder has stopped
    producer = without_disk(cluster, tmp_path)
    stop = producer._components.dead_letter_backend._publishing.stop

    def publish_at_the_end(timeout):
        cluster.release()
        stop(timeout)

    producer._components.dead_letter_backend._publishing.stop = publish_at_the_end
    sent = send(producer, 4)
    eventually(lambda: len(cluster.transports) == 2 and cluster.transports[1]._held)
    report = producer.close()
    assert sorted(cluster.ids("orders-dlt")) == sorted(sent) and report.lost == 0
    assert not any("dead letters could not be stored" in text for text in caplog.messages)


def test_an_alert_fires_while_a_dead_letter_topic_takes_nothing(cluster, store, monkeypatch):
    """Regression: one warning was logged, however long it lasted."""
    monkeypatch.setattr(publisher, "FAILING_AFTER_S", 0.0)
    monkeypatch.setattr(publisher, "_PAUSES", (0.05,))
    cluster.denied.add("orders-dlt")

    def alerts():
        producer._components.dead_letter_backend.flush_soon()
        return [one for one in AlertLog(store).list() if one.rule == "dead_letter_topic_failing"]

    with cluster.producer(store) as producer:
        send(producer, 2)
        (alert,) = eventually(alerts)
        assert (alert.state, alert.subject, alert.threshold) == ("firing", producer.identity, 0.0)
        assert "Broker: Topic authorization failed" in alert.text and alert.value >= 0.0
        send(producer, 1)
        cluster.denied.discard("orders-dlt")
        eventually(lambda: len(cluster.ids("orders-dlt")) == 3)
        eventually(lambda: [one.state for one in alerts()] == ["resolved"])


def test_the_alert_counts_from_the_first_failure_until_no_dead_letter_waits(monkeypatch):
    rounds = [Round(again=True, trouble="a"), Round(again=True, trouble="b"), Round(more=True), Round()]
    failing, now = [], [1000.0]

    class Source:
        def publish_next(self, producer):
            return rounds.pop(0)

    monkeypatch.setattr(publisher, "time", SimpleNamespace(monotonic=lambda: now[0]))
    tested = publisher.DeadLetterPublisher(Source(), lambda: None)
    while rounds:
        tested._round()
        now[0] += 200.0
        failing.append(tested.failing())
    assert [one and (one.reason, one.seconds, one.is_long) for one in failing] == [
        ("a", 200.0, False),
        ("b", 400.0, True),
        ("b", 600.0, True),
        None,
    ]


def test_a_step_that_hangs_is_a_failure_that_is_logged_once_and_ends_with_the_step(monkeypatch, caplog):
    """Regression: a function that blocked stopped the publication without a log line or an alert."""
    failing, now = [], [1000.0]

    class Source:
        def publish_next(self, producer):
            for _ in range(3):
                now[0] += 59.0
                failing.append(tested.failing())
                tested.progressed()
            for _ in range(5):
                now[0] += 60.0
                failing.append(tested.failing())
            return Round()

    monkeypatch.setattr(publisher, "time", SimpleNamespace(monotonic=lambda: now[0]))
    tested = publisher.DeadLetterPublisher(Source(), lambda: None)
    assert tested.failing() is None
    tested._round()
    assert failing[:3] == [None] * 3, "a long step that makes progress"
    assert [(one.seconds, one.is_long) for one in failing[3:]] == [
        (60.0 * number, number == 5) for number in range(1, 6)
    ]
    assert "blocks" in failing[-1].reason
    assert tested.failing() is None
    assert [text.partition(":")[0] for text in caplog.messages] == [
        "dead letters wait for their topic",
        "dead letters are published again",
    ]


def test_an_alert_fires_while_the_function_that_chooses_the_topic_blocks(cluster, store, monkeypatch):
    monkeypatch.setattr(publisher, "_SLOW_S", 0.1)
    monkeypatch.setattr(publisher, "FAILING_AFTER_S", 0.1)
    proceed = threading.Event()

    def choose(dead_letter):
        proceed.wait(60)
        return "all-dead"

    def alerts():
        producer._components.dead_letter_backend.flush_soon()
        return [one.state for one in AlertLog(store).list() if one.rule == "dead_letter_topic_failing"]

    with cluster.producer(store, dead_letter_topic=choose) as producer:
        sent = send(producer, 2)
        eventually(lambda: alerts() == ["firing"])
        proceed.set()
        eventually(lambda: cluster.ids("all-dead") == sent)
        eventually(lambda: alerts() == ["resolved"])


def test_without_a_disk_and_a_topic_sending_waits_its_bound_and_raises(cluster, tmp_path):
    cluster.denied.add("orders-dlt")
    with without_disk(cluster, tmp_path, dlq_max_size=3) as producer:
        send(producer, 4, max_block_ms=30_000)
        eventually(producer._components.dead_letter_backend.full)
        with pytest.raises(QueueFull):
            producer.send_message("others", b"good", max_block_ms=50)

        cluster.denied.discard("orders-dlt")
        assert producer.send_message("others", b"good", max_block_ms=30_000)


def test_a_dead_letter_that_cannot_be_published_holds_up_no_other_in_memory(cluster, tmp_path):
    cluster.unfit = b"0"
    with without_disk(cluster, tmp_path, dlq_max_size=3) as producer:
        sent = send(producer, 20, max_block_ms=30_000)
        eventually(lambda: len(cluster.ids("orders-dlt")) == 19)
        report = producer.close()
    assert sorted(cluster.ids("orders-dlt")) == sorted(sent[1:])
    assert report.lost == 1


def test_without_a_disk_and_a_topic_close_counts_what_is_lost(cluster, tmp_path, caplog):
    cluster.denied.add("orders-dlt")
    producer = without_disk(cluster, tmp_path)
    send(producer, 4)
    producer.flush()
    report = producer.close(timeout=2.0)
    assert (report.dead, report.lost) == (4, 4)
    assert any("dead letters could not be stored: count=4" in text for text in caplog.messages)


def test_the_journal_forgets_a_dead_letter_that_is_published_while_no_disk_takes_it(cluster, tmp_path):
    with without_disk(cluster, tmp_path, journal_dir=tmp_path / "journal") as producer:
        send(producer, 5)
        producer.flush()
        eventually(lambda: len(cluster.ids("orders-dlt")) == 5)
        eventually(lambda: producer.journal.unsettled() == 0)
        report = producer.close()
    assert (report.dead, report.journaled) == (5, 0)


def test_while_the_store_is_unavailable_dead_letters_are_published_and_recorded_later(cluster, tmp_path):
    folder = tmp_path / "state"
    cluster.code = "POLICY_VIOLATION"
    with cluster.producer(folder / "store.duckdb", dlq_max_size=5) as producer:
        folder.rename(tmp_path / "away")
        eventually(lambda: is_file_in_place_of(folder))
        sent = [producer.send_message("orders", b"x", max_block_ms=60_000) for _ in range(4)]
        eventually(lambda: len(cluster.ids("orders-dlt")) == 4)
        folder.unlink()
        (tmp_path / "away").rename(folder)
        eventually(lambda: producer.dlq.count() == 4)
        assert {one.verdict for one in producer.dlq.find()} == {"possibly_persisted"}
        eventually(lambda: [what for what, _ in events(producer.store, sent[0])] == ["published"])

    assert sorted(cluster.ids("orders-dlt")) == sorted(sent), "each once"


# while the disk goes away


def stored_only(cluster, tmp_path, count, **options):
    """Return a producer, its folder, and the ids of its dead letters, which its topic denies and which the store has."""
    cluster.denied.add("orders-dlt")
    folder = tmp_path / "state"
    producer = cluster.producer(folder / "store.duckdb", **options)
    sent = send(producer, count)
    eventually(lambda: producer.dlq.count() == count)
    return producer, folder, sent


def removed(folder):
    shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()


def test_a_dead_letter_whose_disk_goes_away_before_its_publication_is_published(cluster, tmp_path):
    """Regression: it was in no place, and the report of the close counted no loss."""
    producer, folder, sent = stored_only(cluster, tmp_path, 3)
    eventually(lambda: removed(folder))
    cluster.denied.discard("orders-dlt")
    eventually(lambda: sorted(cluster.ids("orders-dlt")) == sorted(sent), timeout=30)
    assert producer.close().lost == 0
    assert sorted(cluster.ids("orders-dlt")) == sorted(sent), "each once"


def test_dead_letters_whose_disk_does_not_come_back_are_published_from_memory(cluster, tmp_path):
    producer, folder, sent = stored_only(cluster, tmp_path, 3)
    folder.rename(tmp_path / "away")
    eventually(lambda: is_file_in_place_of(folder))
    cluster.denied.discard("orders-dlt")
    eventually(lambda: sorted(cluster.ids("orders-dlt")) == sorted(sent), timeout=30)
    folder.unlink()
    (tmp_path / "away").rename(folder)
    eventually(lambda: "published" in [what for what, _ in events(producer.store, sent[0])])
    assert producer.close().lost == 0
    assert sorted(cluster.ids("orders-dlt")) == sorted(sent), "each once"


@pytest.mark.parametrize("journaled", [False, True])
def test_dead_letters_that_neither_a_disk_nor_a_topic_has_are_lost(cluster, tmp_path, caplog, journaled):
    options = {"journal_dir": tmp_path / "journal"} if journaled else {}
    producer, folder, _ = stored_only(cluster, tmp_path, 3, **options)
    folder.rename(tmp_path / "away")
    eventually(lambda: is_file_in_place_of(folder))
    report = producer.close(timeout=2.0)
    assert (report.dead, report.journaled, report.lost) == (3, 0, 3)
    assert any("dead letters lost: count=3" in text for text in caplog.messages)


def test_dead_letters_for_which_memory_has_no_room_are_lost_with_their_disk(cluster, tmp_path):
    producer, folder, _ = stored_only(cluster, tmp_path, 5, dlq_max_size=2)
    eventually(lambda: removed(folder))
    cluster.denied.discard("orders-dlt")
    report = producer.close()
    published = set(cluster.ids("orders-dlt"))
    assert len(published) == 2
    assert (report.dead, report.lost) == (5, 3)


def test_dead_letters_of_an_ended_producer_are_published_by_one_with_the_same_topic(cluster, store):
    cluster.denied.add("orders-dlt")
    ended = cluster.producer(store)
    sent = send(ended, 3)
    ended.flush()
    ended.close(timeout=2.0)

    cluster.denied.discard("orders-dlt")
    for different in ({"dead_letter_topic": "others-{topic}"},):
        with cluster.producer(store, cluster_id="in-memory", **different) as other:
            other.send_message("others", b"good")
            other.flush()
            eventually(lambda: searched(other))
        assert cluster.ids("orders-dlt") == []
    with cluster.producer(store, cluster_id="in-memory"):
        eventually(lambda: sorted(cluster.ids("orders-dlt")) == sorted(sent))


def test_an_application_publishes_the_dead_letters_from_before_it_had_a_name(cluster, store):
    cluster.denied.add("orders-dlt")
    with cluster.producer(store) as ended:
        sent = send(ended, 3)
        ended.flush()
        ended.close(timeout=2.0)
    cluster.denied.discard("orders-dlt")
    with cluster.producer(store, cluster_id="in-memory", application="billing"):
        eventually(lambda: sorted(cluster.ids("orders-dlt")) == sorted(sent))


def test_the_dead_letters_of_an_ended_producer_that_never_reached_a_broker_are_published(cluster, store):
    """Regression: its cluster is unknown, and only producers with a cluster were looked for."""
    cluster.denied.add("orders-dlt")
    with cluster.producer(store) as ended:
        sent = send(ended, 3)
        ended.flush()
        ended.close(timeout=2.0)
    with store.borrow(write=True) as connection:
        connection.execute("UPDATE producers SET cluster_id = ''")
        connection.execute("UPDATE dead_letters SET cluster_id = ''")
    cluster.denied.discard("orders-dlt")
    with cluster.producer(store, cluster_id="in-memory"):
        eventually(lambda: sorted(cluster.ids("orders-dlt")) == sorted(sent))


# the option


@pytest.mark.parametrize("given", ["", "a b", "{topic}", 7, b"dlt", "{topics}"])
def test_a_wrong_dead_letter_topic_is_refused_with_an_example(cluster, store, given):
    with pytest.raises(ConfigError, match="dead_letter_topic"):
        cluster.producer(store, dead_letter_topic=given)


def test_a_dead_letter_topic_without_a_store_is_refused_and_the_fix_names_one_that_suffices(cluster):
    with pytest.raises(ConfigError, match="ephemeral disk"):
        cluster.producer(store=None)
    assert cluster.transports == []


def test_an_unknown_dialect_is_refused():
    with pytest.raises(ConfigError, match="spring"):
        DeadLetterTopic(dialect="camel")


@pytest.mark.parametrize("topic", ["all-dead", publishing_of])
def test_producers_recognize_a_name_and_a_named_function(topic):
    assert DeadLetterTopic(topic).identity == (
        topic if isinstance(topic, str) else f"{__name__}.publishing_of()"
    )


@pytest.mark.parametrize(
    "topic", [lambda dead: "a", functools.partial(publishing_of, 1), Topics().choose, Topics()]
)
def test_producers_recognize_no_other_callable(topic):
    assert DeadLetterTopic(topic).identity is None


def test_a_dead_letter_is_never_published_to_its_own_topic(cluster, store):
    with cluster.producer(store, dead_letter_topic="orders") as producer:
        (message_id,) = send(producer, 1)
    ((what, text),) = events(store, message_id)
    assert what == "not published" and "own topic" in text
    assert producer.dlq.count(DeadLetterFilter()) == 1
