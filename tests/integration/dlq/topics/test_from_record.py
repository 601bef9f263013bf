"""Dead letters on topics of Apache Kafka: published, read by kcat, fetched into another store and replayed."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import uuid
from collections import Counter

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from producer_core import ReliableKafkaProducer, replay
from producer_core.dlq import DeadLetterFilter, DeadLetters, topics
from producer_core.dlq.timeline import timeline
from producer_core.dlq.topics import publisher
from producer_core.dlq.topics.slice_publisher import PublicationEvents
from producer_core.dlq.topics.topic_sender import prober
from producer_core.errors import ConfigError, StoreError
from producer_core.messages import parse_id
from producer_core.replay.claims import ReplayClaims
from producer_core.store import Store
from tests.factories import replay_runner
from tests.fixtures.dead_letter_headers import CONNECT, PRODUCER_CORE, SHARE_GROUP, SPRING
from tests.fixtures.replays import dead_letter
from tests.support import eventually

pytestmark = pytest.mark.kafka

WHO = {"who": "ann", "origin": "python"}
COMMAND = (sys.executable, "-m", "producer_core.cli")
BODIES = ((b"k1", b"one"), (None, b"no key"), (b"\xff\x00", b"\xfe\x00\n"), (b"gone", None), (b"", b""))


@pytest.fixture
def store(tmp_path):
    opened = Store.open(tmp_path / "here.duckdb")
    yield opened
    opened.close()


@pytest.fixture
def other_store(tmp_path):
    opened = Store.open(tmp_path / "there.duckdb")
    yield opened
    opened.close()


@pytest.fixture
def topic(kafka):
    name = f"orders-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(name, partitions=3)
    kafka.create_topic(f"{name}-dlt", partitions=2)
    return name


def settings(kafka):
    return {"bootstrap.servers": kafka.bootstrap_servers}


def add_dead_letters(store, kafka, topic, **changes):
    dead_letters = [
        dead_letter(number, topic=topic, cluster_id=kafka.cluster_id, key=key, value=value, **changes)
        for number, (key, value) in enumerate(BODIES)
    ]
    DeadLetters(store).add(dead_letters)
    return dead_letters


def stored(store, **where):
    found = DeadLetters(store).find(DeadLetterFilter(state=None, **where), limit=10_000)
    return {one.message_id: one for one in DeadLetters(store).bodies([one.message_id for one in found])}


def publish(store, kafka, topic, name="{topic}-dlt", **choices):
    return topics.publish(
        store,
        DeadLetterFilter(topic=topic),
        name,
        settings(kafka),
        open_producer=lambda servers, settings: ReliableKafkaProducer(
            servers, settings, store=None, run_replays=False
        ),
        **WHO,
        **choices,
    )


def fetch(store, kafka, topic, **choices):
    return topics.fetch(settings(kafka), topic, store, **WHO, **choices)


def put(kafka, topic, records):
    """Write records as (key, value, headers) with a plain client."""
    producer = Producer(settings(kafka))
    for key, value, headers in records:
        producer.produce(topic, value, key, headers=list(headers), partition=0)
    assert producer.flush(60) == 0


def seen_by_kcat(kafka, topic):
    read = subprocess.run(
        ["kcat", "-C", "-q", "-e", "-J", "-b", kafka.bootstrap_servers, "-t", topic, "-o", "beginning"],
        capture_output=True, timeout=60, check=True,
    )  # fmt: skip
    return [json.loads(line.decode(errors="replace")) for line in read.stdout.splitlines()]


def times(kafka, topic, value):
    """Count a value on a topic with kcat as a read_committed reader."""
    read = subprocess.run(
        ["kcat", "-C", "-q", "-e", "-b", kafka.bootstrap_servers, "-t", topic, "-f", "%s;", "-o", "beginning",
         "-X", "isolation.level=read_committed"],
        capture_output=True, timeout=60, check=True,
    )  # fmt: skip
    return read.stdout.split(b";").count(value)


# publishing


@pytest.mark.usefixtures("kcat")
def test_published_dead_letters_are_on_the_topic_with_headers_and_stay_dead(kafka, topic, store):
    dead_letters = add_dead_letters(store, kafka, topic)

    done = publish(store, kafka, topic)

    assert (done.published, done.failed, done.left) == (len(BODIES), 0, 0)
    records = seen_by_kcat(kafka, f"{topic}-dlt")
    assert len(records) == len(BODIES)
    headers = [dict(zip(record["headers"][::2], record["headers"][1::2], strict=True)) for record in records]
    assert {one["dlq.message.id"] for one in headers} == {one.message_id for one in dead_letters}
    assert {one["dlq.original.topic"] for one in headers} == {topic}
    assert {one["dlq.delivery.verdict"] for one in headers} == {"rejected"}
    assert {one.state for one in stored(store).values()} == {"dead"}
    assert {one.verdict for one in stored(store).values()} == {"possibly_persisted"}, "a reader may replay it"
    texts = [event.text for event in timeline(store, dead_letters[0].message_id) if event.what == "published"]
    assert len(texts) == 1
    assert texts[0].startswith(f"at {topic}-dlt[")
    acts = [row["action"] for row in store.rows("audit_latest", limit=10)]
    assert acts.count("publish") == 2, "start and result are audited"


def test_a_publication_leaves_out_what_a_replay_has_claimed(kafka, topic, store):
    """A claim of many records is one row: their own rows do not say that they are claimed."""
    add_dead_letters(store, kafka, topic)
    planned = replay.plan(
        store, DeadLetterFilter(topic=topic), limit=3, can_run=frozenset({kafka.cluster_id}), **WHO
    )
    claims = ReplayClaims(store, planned.operation_id, "a runner", lease=60.0, clock=time.time)
    assert claims.take(None)
    assert len(claims.settle_and_claim((), want=3, busy=True, wave=3).dead_letters) == 3

    assert publish(store, kafka, topic).published == 2


def test_a_second_publication_skips_published_dead_letters_unless_again_is_set(kafka, topic, store):
    add_dead_letters(store, kafka, topic)
    publish(store, kafka, topic)

    second = publish(store, kafka, topic)
    third = publish(store, kafka, topic, again=True)

    assert (second.published, second.already) == (0, len(BODIES))
    assert "already published there" in second.text
    assert (third.published, third.already) == (len(BODIES), 0)
    assert times(kafka, f"{topic}-dlt", b"one") == 2


def test_records_of_an_interrupted_publication_are_found_and_not_sent_twice(kafka, topic, store, monkeypatch):
    """Simulate a kill between the acknowledgement and the event that records it."""
    add_dead_letters(store, kafka, topic)
    write = PublicationEvents.add

    def fail_on_published(self, what, texts):
        if what == "published" and texts:
            raise StoreError("killed here")
        write(self, what, texts)

    with monkeypatch.context() as patch, pytest.raises(StoreError):
        patch.setattr(PublicationEvents, "add", fail_on_published)
        publish(store, kafka, topic)
    second = publish(store, kafka, topic)

    assert (second.published, second.found, second.failed) == (0, len(BODIES), 0)
    assert times(kafka, f"{topic}-dlt", b"one") == 1
    assert publish(store, kafka, topic).already == len(BODIES)


def test_a_record_that_the_broker_appends_after_the_first_lookup_is_not_sent_again(
    kafka, topic, store, monkeypatch
):
    """As by a broker that hung while the command was killed, and that continues when the command is repeated."""
    dead_letters = add_dead_letters(store, kafka, topic)
    PublicationEvents(store, **WHO, clock=time.time).add(
        "publishing", {one.message_id: f"to {topic}-dlt" for one in dead_letters}
    )
    late = [(one.key, one.value, [("pc-id", parse_id(one.message_id))]) for one in dead_letters[:2]]

    def slow_broker(settings):
        probe = prober(settings)

        def look(*request):
            found = probe(*request)
            put(kafka, f"{topic}-dlt", late)
            late.clear()
            return found

        return look

    monkeypatch.setattr(publisher, "prober", slow_broker)
    second = publish(store, kafka, topic)

    assert (second.published, second.found, second.failed) == (len(BODIES) - 2, 2, 0)
    assert times(kafka, f"{topic}-dlt", b"one") == 1


def test_a_missing_or_compacted_topic_is_rejected(kafka, topic, store):
    add_dead_letters(store, kafka, topic)
    compacted = f"{topic}-compacted"
    kafka.create_topic(compacted, partitions=1, config={"cleanup.policy": "compact"})

    with pytest.raises(ConfigError, match="compacted"):
        publish(store, kafka, topic, compacted)
    with pytest.raises(ConfigError, match="does not exist"):
        publish(store, kafka, topic, f"{topic}-nowhere")
    assert seen_by_kcat(kafka, f"{topic}-dlt") == []


# fetching


def test_published_dead_letters_are_fetched_into_another_store_and_replayed(kafka, topic, store, other_store):
    dead_letters = {one.message_id: one for one in add_dead_letters(store, kafka, topic)}
    publish(store, kafka, topic)

    done = fetch(other_store, kafka, f"{topic}-dlt")

    assert (done.new, done.known, done.not_replayable, done.left) == (len(BODIES), 0, 0, 0)
    there = stored(other_store)
    assert there.keys() == dead_letters.keys()
    for message_id, one in there.items():
        before = dead_letters[message_id]
        assert (one.key, one.value, one.topic) == (before.key, before.value, before.topic)
        assert one.headers == (*before.headers, ("dlq.replay.generation", b"1"))
        assert one.verdict == "possibly_persisted", "the first store may have replayed it since"
        assert one.source.startswith(f"{topic}-dlt[")

    replayed(kafka, other_store, topic)
    assert times(kafka, topic, b"one") == 1
    assert {one.state for one in stored(other_store).values()} == {"replayed"}


def test_a_replay_finds_records_that_another_store_replayed(kafka, topic, store, other_store):
    add_dead_letters(store, kafka, topic)
    publish(store, kafka, topic)
    fetch(other_store, kafka, f"{topic}-dlt")

    replayed(kafka, store, topic)
    replayed(kafka, other_store, topic)

    assert {one.state for one in stored(other_store).values()} == {"landed"}
    assert times(kafka, topic, b"one") == 1


def test_dead_letters_of_a_foreign_dialect_are_fetched_once_and_replayed(kafka, topic, store):
    at = tuple(
        (name, topic.encode() if name.endswith("topic") else raw) for name, raw in (*SPRING[:4], *SPRING[5:])
    )
    own = (("trace", b"\x00\xff"), ("trace", None), ("trace", b"\x00\xff"))
    put(kafka, f"{topic}-dlt", [(key, value, (*own, *at)) for key, value in BODIES])

    first = fetch(store, kafka, f"{topic}-dlt")
    second = fetch(store, kafka, f"{topic}-dlt")
    third = fetch(store, kafka, f"{topic}-dlt", again=True)

    assert (first.new, first.by_dialect, first.by_verdict) == (5, {"spring": 5}, {"found": 5})
    assert (second.looked_at, second.new) == (0, 0)
    assert (third.looked_at, third.new, third.known) == (5, 0, 5)
    dead_letters = stored(store).values()
    assert Counter((one.key, one.value) for one in dead_letters) == Counter(BODIES)
    texts = {
        event.text
        for one in dead_letters
        for event in timeline(store, one.message_id)
        if event.what == "fetched"
    }
    assert texts == {f"from {topic}-dlt[0]@{number}" for number in range(5)}
    assert {one.headers for one in dead_letters} == {(*own, ("dlq.replay.generation", b"1"))}
    assert {(one.topic, one.partition) for one in dead_letters} == {(topic, 2)}
    replayed(kafka, store, topic)
    assert times(kafka, topic, b"one") == 1
    assert fetch(store, kafka, f"{topic}-dlt", again=True).new == 0, "replayed dead letters are known, too"


def test_a_record_without_headers_is_replayable_once_its_topic_is_given(kafka, topic, store):
    put(kafka, f"{topic}-dlt", [(b"k", b"one", ())])

    assert fetch(store, kafka, f"{topic}-dlt").not_replayable == 1
    with_topic = fetch(store, kafka, f"{topic}-dlt", again=True, original_topic=topic)

    assert (with_topic.new, with_topic.not_replayable) == (1, 0)
    (one,) = stored(store).values()
    assert (one.topic, one.replayable, one.value) == (topic, True, b"one")


def test_a_recreated_topic_is_a_different_topic(kafka, topic, store):
    put(kafka, f"{topic}-dlt", [(b"k", b"old", CONNECT)])
    fetch(store, kafka, f"{topic}-dlt")
    recreate_topic(kafka, f"{topic}-dlt")
    put(kafka, f"{topic}-dlt", [(b"k", b"new", CONNECT)])

    assert fetch(store, kafka, f"{topic}-dlt").new == 1
    assert {one.value for one in stored(store).values()} == {b"old", b"new"}


def test_a_fetch_continues_after_a_failure_between_slices(kafka, topic, store, monkeypatch):
    records = [(b"%d" % number, b"v%d" % number, CONNECT) for number in range(25)]
    put(kafka, f"{topic}-dlt", records)
    monkeypatch.setattr("producer_core.dlq.topics.fetcher.SLICE", 1)
    calls = iter(range(100))

    with pytest.raises(RuntimeError):
        fetch(store, kafka, f"{topic}-dlt", progress=lambda done, of: next(calls) or fail())
    again = fetch(store, kafka, f"{topic}-dlt")

    assert again.left == 0
    assert len(stored(store)) == 25


def test_since_fetches_later_records_and_the_next_fetch_the_earlier_ones(kafka, topic, store):
    producer = Producer(settings(kafka))
    for number, timestamp_ms in enumerate((1_700_000_000_000, 1_700_000_100_000)):
        producer.produce(
            f"{topic}-dlt",
            b"%d" % number,
            b"k",
            headers=list(SHARE_GROUP),
            partition=0,
            timestamp=timestamp_ms,
        )
    assert producer.flush(60) == 0

    later = fetch(store, kafka, f"{topic}-dlt", since=1_700_000_050.0)
    rest = fetch(store, kafka, f"{topic}-dlt")

    assert (later.new, rest.new, rest.known) == (1, 1, 1)


# the command


def test_the_commands_publish_and_fetch(kafka, topic, store, other_store):
    add_dead_letters(store, kafka, topic)
    brokers = ("-b", kafka.bootstrap_servers)

    refused = run("dlq", "publish", "--topic", topic, *brokers, "--store", str(store.path))
    published = run("dlq", "publish", "--topic", topic, *brokers, "--yes", "--dialect", "spring", "--store", str(store.path))  # fmt: skip
    again = run("dlq", "publish", "--topic", topic, *brokers, "--yes", "--json", "--store", str(store.path))
    fetched = run("dlq", "fetch", f"{topic}-dlt", *brokers, "--store", str(other_store.path))
    missing = run("dlq", "fetch", f"{topic}-nowhere", *brokers, "--store", str(other_store.path))

    assert refused.returncode == 2, "no confirmation without a terminal"
    assert published.returncode == 0, published.stderr
    assert (
        f"Published 5 dead letters to {topic}-dlt (5); they remain dead letters in this store."
        in published.stdout
    )
    assert json.loads(again.stdout)["already"] == 5
    assert fetched.returncode == 0, fetched.stderr
    assert "5 new, 0 known" in fetched.stdout
    assert missing.returncode == 2
    assert {name for name, _ in PRODUCER_CORE} <= names_on(kafka, f"{topic}-dlt") | {
        "dlq.original.partition",
        "dlq.original.timestamp_ms",
    }
    assert "kafka_dlt-original-topic" in names_on(kafka, f"{topic}-dlt")


# helpers


def run(*words):
    return subprocess.run(
        [*COMMAND, *words], capture_output=True, text=True, timeout=180, stdin=subprocess.DEVNULL
    )


def names_on(kafka, topic):
    return {name for record in seen_by_kcat(kafka, topic) for name in record["headers"][::2]}


def fail():
    raise RuntimeError("killed here")


def replayed(kafka, store, topic):
    """Replay all dead letters of a topic with a new producer until the replay is done."""
    operation = replay.plan(
        store,
        DeadLetterFilter(topic=topic),
        who="ann",
        origin="python",
        can_run=kafka.cluster_id,
        newer="send",
        inconclusive="send",
    )
    with ReliableKafkaProducer(
        kafka.bootstrap_servers, store=store, cluster_id=kafka.cluster_id, run_replays=False
    ) as producer:
        runner = replay_runner(store, producer, client=producer.config.settings)
        runner.run_one(operation.operation_id, 120)
        runner.stop()
    assert replay.get(store, operation.operation_id).state == "done"


def recreate_topic(kafka, topic):
    admin = AdminClient(settings(kafka))
    admin.delete_topics([topic])[topic].result(60)
    eventually(lambda: topic not in admin.list_topics(timeout=20).topics)
    eventually(lambda: created(kafka, topic))


def created(kafka, topic):
    try:
        kafka.create_topic(topic, partitions=2)
    except Exception:  # until the old topic is deleted
        return False
    return True
