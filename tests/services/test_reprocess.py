"""The reprocess job: dead letters are sent to a real Kafka, and kcat counts. Spark sends them, and is killed meanwhile, where
it matters who sends; elsewhere a thread does, as Spark's tasks would."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from producer_core import replay
from producer_core.cli import main
from producer_core.config import client_config
from producer_core.delivery.dead_letter import delivery_of
from producer_core.dlq import DeadLetterFilter, DeadLetters, files
from producer_core.kafka import record_lookup
from producer_core.messages import id_bytes, id_text
from producer_core.pipeline.reprocess import batches, bring, brought, reprocess, spark_replay
from producer_core.store import Store
from tests import reprocess_driver
from tests.replays import dead_letters as made
from tests.replays.reading import read
from tests.support import eventually
from tests.unit.replaying import dead_letter

ROOT = Path(__file__).parents[2]
SESSIONS = 12


@pytest.fixture
def topic(kafka):
    name = f"reprocess-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(name, partitions=3)
    return name


@pytest.fixture
def no_spark(monkeypatch):
    """In place of a session: each wave is sent by a thread of ours."""
    monkeypatch.setattr(spark_replay, "SparkBatch", reprocess_driver.Here)
    return reprocess_driver.NoSpark


def letters_for(kafka, topic, count, **changes):
    sessions = made.sessions(SESSIONS)
    return [
        dead_letter(
            number, message_id=id_text(id_bytes(sessions[number % SESSIONS], number)), topic=topic,
            cluster_id=kafka.cluster_id, key=b"k%d" % (number % 50), headers=(("n", b"%d" % number),), **changes,
        )
        for number in range(count)
    ]  # fmt: skip


def there(kafka, topic):
    """How often each dead letter is on the topic for a read_committed reader that is not ours."""
    return Counter(record.number for record in read(kafka.bootstrap_servers, topic))


def run(spark, kafka, store, **more):
    """In one wave, unless the test says otherwise; what was begun keeps its plan."""
    plan = {"slices": 3} if "operation_id" in more else {"slices": 3, "canary": 0}
    return reprocess(spark, store, kafka.bootstrap_servers, who="ann", timeout=300, **{**plan, **more})


def settled(store):
    (now,) = replay.list_operations(store, limit=1) or [None]
    return 0 if now is None else now.total - now.left


def produce(kafka, topic, records):
    """Value, key and headers of each, as if it were a while ago: a doubtful dead letter that just failed is let rest for 40 s."""
    long_ago = int((time.time() - 100) * 1000)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for value, key, headers in records:
        producer.produce(topic, value, key, headers=headers, timestamp=long_ago)
    assert producer.flush(30) == 0


def command(kafka, store, *more):
    return [
        "pipeline",
        "reprocess",
        "-b",
        kafka.bootstrap_servers,
        "--store",
        str(store.path),
        "--json",
        *more,
    ]


@pytest.mark.spark
def test_a_driver_killed_after_a_commit_and_killed_workers_and_each_letter_is_there_once(
    spark, kafka, kcat, topic, store, monkeypatch
):
    """The driver before it writes its second wave down; then each wave's first task in its open transaction."""
    count, wave = 600, 200
    DeadLetters(store).add(letters_for(kafka, topic, count))
    dying = ["-m", "tests.reprocess_driver", kafka.bootstrap_servers, str(store.path), str(wave)]

    died = subprocess.run([sys.executable, *dying], cwd=ROOT, capture_output=True, timeout=120)

    assert died.returncode == -signal.SIGKILL, died.stderr
    (killed,) = replay.list_operations(store)
    assert (killed.acknowledged, killed.left) == (wave, count - wave)
    assert there(kafka, topic).total() == 2 * wave
    # Its lease is not waited for: that a dead owner's is taken over is shown elsewhere.
    store.execute("replay_let_go", operation=killed.operation_id, owner=killed.owner)

    monkeypatch.setattr(batches, "runner", reprocess_driver.dying_worker)
    done = run(spark, kafka, store, operation_id=killed.operation_id, slices=None, wave=wave)

    assert there(kafka, topic) == Counter(range(count))
    assert len(read(kafka.bootstrap_servers, topic, committed=False)) > count
    assert (done.acknowledged, done.landed, done.left, done.state) == (2 * wave, wave, 0, "done")
    assert done.delivery == "exactly_once"
    assert DeadLetters(store).count(DeadLetterFilter()) == 0
    (job,) = store.rows("jobs")
    assert (job["kind"], job["state"], job["records_done"]) == ("reprocess", "done", count)
    acts = [row["action"] for row in store.rows("replay_audit", operation=killed.operation_id)]
    assert acts.count("replay") == 1


@pytest.mark.kafka
def test_a_driver_killed_after_it_sent_a_small_wave_itself_and_each_letter_is_there_once(
    no_spark, kafka, kcat, topic, store
):
    """Its canary is written down, what came after it is only on the topic."""
    count = 150
    DeadLetters(store).add(letters_for(kafka, topic, count))
    dying = ["-m", "tests.reprocess_driver", kafka.bootstrap_servers, str(store.path), "1000", "10"]

    died = subprocess.run([sys.executable, *dying], cwd=ROOT, capture_output=True, timeout=120)

    assert died.returncode == -signal.SIGKILL, died.stderr
    (killed,) = replay.list_operations(store)
    assert (killed.acknowledged, there(kafka, topic).total()) == (10, 111)
    store.execute("replay_let_go", operation=killed.operation_id, owner=killed.owner)

    done = run(no_spark, kafka, store, operation_id=killed.operation_id, slices=None)

    assert there(kafka, topic) == Counter(range(count))
    assert (done.acknowledged, done.landed, done.left, done.state) == (49, 101, 0, "done")


@pytest.mark.spark
def test_an_export_in_another_store_and_only_what_is_not_there(
    spark, kafka, kcat, topic, store, tmp_path, monkeypatch
):
    """All are in doubt, some of them are there: Spark finds them, and they are not sent."""
    dead_letters = letters_for(kafka, topic, 200, verdict="possibly_persisted", accepted_at=time.time() - 100)
    DeadLetters(store).add(dead_letters)
    produce(
        kafka, topic, [(one.value, one.key, delivery_of(one).record_headers) for one in dead_letters[:50]]
    )
    file = tmp_path / "letters.parquet"
    files.export(store, DeadLetterFilter(), file, who="ann", origin="cli")
    elsewhere = Store.open(tmp_path / "elsewhere.duckdb")
    DeadLetters(elsewhere).add([dead_letter(9_000, topic=topic, cluster_id=kafka.cluster_id)])
    seen = CliRunner().invoke(
        main, command(kafka, elsewhere, "--dry-run", "--from-export", str(file)), catch_exceptions=False
    )
    assert json.loads(seen.stdout)["total"] == 200
    assert DeadLetters(elsewhere).count(DeadLetterFilter()) == 1

    bring(elsewhere, {}, who="ann", file=file)
    monkeypatch.setattr(record_lookup, "BULK_THRESHOLD", 10)
    done = run(
        spark,
        kafka,
        elsewhere,
        selection=brought(DeadLetterFilter(), file=file),
        slice_by="key",
        inconclusive="send",
    )

    assert (done.landed, done.acknowledged, done.state, done.owner) == (50, 150, "done", None)
    assert there(kafka, topic) == Counter(range(200))
    assert DeadLetters(elsewhere).count(DeadLetterFilter()) == 1
    elsewhere.close()


@pytest.mark.spark
def test_a_bad_replay_stops_at_its_canary_and_the_rest_stays(spark, kafka, store, topic):
    compacted = f"{topic}-c"
    kafka.create_topic(compacted, partitions=1, config={"cleanup.policy": "compact"})
    DeadLetters(store).add([replace(one, key=None) for one in letters_for(kafka, compacted, 40)])

    done = run(spark, kafka, store, canary=3)

    assert done.state == "stopped"
    assert done.failed_again <= 3
    assert DeadLetters(store).count(DeadLetterFilter()) == 40
    assert done.message.startswith("Stopped itself. The canary failed")


@pytest.mark.kafka
def test_a_dead_letter_topic_in_springs_dialect_goes_back_to_its_topic(no_spark, kafka, kcat, store, topic):
    dlt = f"{topic}-dlt"
    kafka.create_topic(dlt, partitions=2)
    produce(kafka, dlt, [
        (b"v%d" % number, b"k%d" % number, [
            ("n", b"%d" % number), ("kafka_dlt-original-topic", topic.encode()),
            ("kafka_dlt-original-partition", (number % 3).to_bytes(4, "big")),
            ("kafka_dlt-original-offset", number.to_bytes(8, "big")),
            ("kafka_dlt-exception-fqcn", b"java.lang.IllegalStateException"),
        ]) for number in range(60)
    ])  # fmt: skip
    seen = CliRunner().invoke(
        main, command(kafka, store, "--dry-run", "--from-topic", dlt), catch_exceptions=False
    )
    assert json.loads(seen.stdout)["total"] == 60
    assert DeadLetters(store).count(DeadLetterFilter()) == 0

    settings = client_config(kafka.bootstrap_servers).settings
    for _ in range(2):
        bring(store, settings, who="ann", dead_letter_topic=dlt)
    where = brought(DeadLetterFilter(), dead_letter_topic=dlt)
    done, again = [run(no_spark, kafka, store, selection=where, inconclusive="send") for _ in range(2)]

    assert (done.acknowledged, done.total, again.total) == (60, 60, 0)
    assert there(kafka, topic) == Counter(range(60))


@pytest.mark.kafka
def test_the_command_looks_before_it_asks_and_a_mistyped_topic_is_told(kafka, store, topic):
    """Both without Spark: it is not started before somebody agreed."""
    DeadLetters(store).add(letters_for(kafka, topic, 6) + letters_for(kafka, "gone", 9)[6:])

    refused = CliRunner().invoke(main, command(kafka, store))
    mistyped = CliRunner().invoke(main, command(kafka, store, "--topic", "ordrs"), catch_exceptions=False)

    assert refused.exit_code == 2
    assert "Dry run: 9 records" in refused.stderr
    assert "3 records cannot be sent: there is no topic gone." in refused.stderr
    assert "give --yes" in refused.stderr
    assert "Starting" not in refused.stderr
    assert replay.list_operations(store) == []
    assert mistyped.exit_code == 0
    assert (
        f"no dead letter is of 'ordrs'. There are dead letters of {topic} (6), gone (3)." in mistyped.stdout
    )


@pytest.mark.kafka
def test_paused_by_somebody_gone_on_with_by_id_and_cancelled(no_spark, kafka, kcat, store, topic):
    DeadLetters(store).add(letters_for(kafka, topic, 600))

    def act(what, moment):
        eventually(lambda: settled(store) >= moment, 120, every=0.05)
        what(store, replay.live(store)[0].operation_id, who="bob", origin="dashboard")

    def meanwhile(what, moment, **more):
        thread = threading.Thread(target=act, args=(what, moment))
        thread.start()
        told = run(no_spark, kafka, store, wave=20, **more)
        thread.join()
        return told

    paused = meanwhile(replay.pause, 10, rate=60.0)
    assert (paused.state, paused.owner) == ("paused", None)
    assert 0 < paused.left < 600
    assert there(kafka, topic).total() == 600 - paused.left

    done = meanwhile(
        replay.cancel, 600 - paused.left + 10, operation_id=paused.operation_id, rate=80.0, slices=None
    )
    sent = there(kafka, topic)
    assert done.state == "cancelled"
    assert done.ended
    assert set(sent.values()) == {1}
    assert sent.total() == done.acknowledged
    assert DeadLetters(store).count_by(DeadLetterFilter(state=None), "state") == {
        "dead": 600 - sent.total(),
        "replayed": sent.total(),
    }
