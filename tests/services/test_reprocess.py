"""The reprocess job: real Spark sends dead letters to a real Kafka, and is killed meanwhile; kcat counts."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import uuid
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Producer

from producer_core import replay, transfer
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.messages import id_bytes, id_text
from producer_core.store import Store
from tests import sparks
from tests.replays import letters as made
from tests.replays.reading import read
from tests.support import eventually
from tests.unit.replaying import letter

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
SESSIONS = 12


@pytest.fixture
def topic(kafka):
    name = f"reprocess-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(name, partitions=3)
    return name


@pytest.fixture
def store(tmp_path):
    opened = Store.open(tmp_path / "store.duckdb")
    yield opened
    opened.close()


def letters_for(kafka, topic, count, **changes):
    sessions = made.sessions(SESSIONS)
    return [
        letter(
            number, message_id=id_text(id_bytes(sessions[number % SESSIONS], number)), topic=topic,
            cluster_id=kafka.cluster_id, key=b"k%d" % (number % 50), headers=(("n", b"%d" % number),), **changes,
        )
        for number in range(count)
    ]  # fmt: skip


def there(kafka, topic):
    """How often each letter is on the topic for a read_committed reader that is not ours."""
    return Counter(record.number for record in read(kafka.bootstrap_servers, topic))


def command(kafka, store, *more):
    words = [
        "pipeline",
        "reprocess",
        "-b",
        kafka.bootstrap_servers,
        "--store",
        str(store.path),
        "--yes",
        "--json",
    ]
    return [sys.executable, "-m", "producer_core.cli", *words, "--driver-memory", "1g", *more]


def settled(store):
    (now,) = replay.list_operations(store, limit=1) or [None]
    return 0 if now is None else now.total - now.left


@pytest.mark.timeout(900)  # two sessions of Spark, on a machine that others use as well
def test_killed_worker_killed_driver_and_each_letter_is_there_once(kafka, kcat, topic, store, tmp_path):
    count = 4_000
    DeadLetters(store).add(letters_for(kafka, topic, count))
    paced = ["--master", "local[2,4]", "--rate", "1500", "--wave", "2000"]
    with (tmp_path / "first.log").open("wb") as log:
        driver = subprocess.Popen(command(kafka, store, *paced), cwd=ROOT, stdout=log, stderr=log)
        try:
            eventually(lambda: settled(store) > 300 and sparks.workers(driver.pid), timeout=300, every=0.1)
            victims = sparks.workers(driver.pid)
            sparks.kill(victims[0])
            after_worker = settled(store)
            eventually(lambda: settled(store) > after_worker + 500, timeout=300, every=0.1)
            below = sparks.tree(driver.pid)
        finally:
            driver.kill()
            driver.wait(30)
    eventually(lambda: not [pid for pid in below if sparks.command(pid) == below[pid]], timeout=60, every=0.5)
    operation = replay.list_operations(store, limit=1)[0]
    assert 0 < operation.left < count

    done = subprocess.run(
        command(kafka, store, "--operation", operation.operation_id, "--master", "local[2,4]"),
        cwd=ROOT, capture_output=True, text=True, timeout=600,
    )  # fmt: skip

    told = json.loads(done.stdout)
    assert done.returncode == 0, done.stderr
    assert there(kafka, topic) == Counter(range(count))
    assert (told["acknowledged"] + told["landed"], told["left"], told["state"]) == (count, 0, "done")
    assert DeadLetters(store).count(DeadLetterFilter()) == 0
    assert replay.get(store, operation.operation_id).delivery == "exactly_once"
    (job,) = store.rows("jobs")
    assert (job["kind"], job["state"], job["records_done"]) == ("reprocess", "done", count)
    assert [row["action"] for row in store.rows("replay_audit", operation=operation.operation_id)].count(
        "replay"
    ) == 1


def run(spark, kafka, store, **more):
    from producer_core.pipeline.reprocess import reprocess

    return reprocess(spark, store, kafka.bootstrap_servers, who="ann", timeout=900, **more)


def test_from_python_an_export_another_store_and_only_what_is_not_there(
    spark, kafka, kcat, topic, store, tmp_path
):
    """Half are in doubt, half of those are there: they are found and not sent."""
    letters = letters_for(kafka, topic, 400, verdict="possibly_persisted", accepted_at=time.time() - 100)
    DeadLetters(store).add(letters)
    produce(kafka, topic, letters[:100])
    transfer.export(store, DeadLetterFilter(), tmp_path / "letters.parquet", who="ann", origin="cli")
    elsewhere = Store.open(tmp_path / "elsewhere.duckdb")
    DeadLetters(elsewhere).add([letter(9_000, topic=topic, cluster_id=kafka.cluster_id)])
    from producer_core.pipeline.reprocess import bring, brought

    bring(elsewhere, {}, who="ann", file=tmp_path / "letters.parquet")
    where = brought(DeadLetterFilter(), file=tmp_path / "letters.parquet")
    done = run(spark, kafka, elsewhere, selection=where, slice_by="key", slices=5)

    assert (done.landed, done.acknowledged, done.state) == (100, 300, "done")
    assert done.owner is None
    assert there(kafka, topic) == Counter(range(400))
    assert DeadLetters(elsewhere).count(DeadLetterFilter()) == 1
    elsewhere.close()


def produce(kafka, topic, letters):
    from producer_core.burial import delivery_of

    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for one in letters:
        producer.produce(topic, one.value, one.key, headers=delivery_of(one).headers)
    assert producer.flush(30) == 0


def test_a_bad_replay_stops_at_its_canary_and_the_rest_stays(spark, kafka, store, topic):
    compacted = f"{topic}-c"
    kafka.create_topic(compacted, partitions=1, config={"cleanup.policy": "compact"})
    DeadLetters(store).add([*map(without_key, letters_for(kafka, compacted, 200))])

    done = run(spark, kafka, store, canary=5)

    assert done.state == "stopped"
    assert done.failed_again <= 5
    assert DeadLetters(store).count(DeadLetterFilter()) == 200
    assert done.message.startswith("Stopped itself. The canary failed")


def without_key(one):
    from dataclasses import replace

    return replace(one, key=None)


def test_a_dead_letter_topic_in_springs_dialect_goes_back_to_its_topic(spark, kafka, kcat, store, topic):
    from producer_core.config import client_config
    from producer_core.pipeline.reprocess import bring, brought

    dlt = f"{topic}-dlt"
    kafka.create_topic(dlt, partitions=2)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for number in range(120):
        headers = [
            ("n", b"%d" % number), ("kafka_dlt-original-topic", topic.encode()),
            ("kafka_dlt-original-partition", (number % 3).to_bytes(4, "big")),
            ("kafka_dlt-original-offset", number.to_bytes(8, "big")),
            ("kafka_dlt-exception-fqcn", b"java.lang.IllegalStateException"),
        ]  # fmt: skip
        producer.produce(dlt, b"v%d" % number, b"k%d" % number, headers=headers)
    assert producer.flush(30) == 0

    settings = client_config(kafka.bootstrap_servers).settings
    for _ in range(2):
        bring(store, settings, who="ann", dead_letter_topic=dlt)
    done = run(spark, kafka, store, selection=brought(DeadLetterFilter(), dead_letter_topic=dlt))
    again = run(spark, kafka, store, selection=brought(DeadLetterFilter(), dead_letter_topic=dlt))

    assert (done.acknowledged, done.total, again.total) == (120, 120, 0)
    assert there(kafka, topic) == Counter(range(120))


def test_paused_by_somebody_and_gone_on_with_by_id(spark, kafka, kcat, store, topic):
    import threading

    DeadLetters(store).add(letters_for(kafka, topic, 600))

    def pause():
        operation = eventually(lambda: replay.live(store), 300, every=0.1)[0]
        eventually(lambda: settled(store) >= 10, 300, every=0.1)
        replay.pause(store, operation.operation_id, who="bob", origin="dashboard")

    thread = threading.Thread(target=pause)
    thread.start()
    paused = run(spark, kafka, store, rate=60.0)
    thread.join()
    assert (paused.state, paused.owner) == ("paused", None)
    assert 0 < paused.left < 600

    done = run(spark, kafka, store, operation_id=paused.operation_id, rate=5_000.0)
    assert done.state == "done"
    assert there(kafka, topic) == Counter(range(600))
