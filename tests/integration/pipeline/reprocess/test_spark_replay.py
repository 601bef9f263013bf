"""The reprocess job with a real Kafka; kcat counts the records.

Spark sends them, and is killed, where the sender matters; elsewhere a thread sends them as Spark's tasks would.
"""

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
from producer_core.pipeline.reprocess import batches, from_sources, import_sources, reprocess, spark_replay
from producer_core.store import Store
from tests.fixtures.replays import dead_letter
from tests.processes import reprocess as reprocess_driver
from tests.scenarios.replays import dead_letters as made
from tests.scenarios.replays.reading import read
from tests.support import ROOT, eventually

SESSIONS = 12


@pytest.fixture
def topic(kafka):
    name = f"reprocess-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(name, partitions=3)
    return name


@pytest.fixture
def no_spark(monkeypatch):
    """Replace the session: a thread sends each batch."""
    monkeypatch.setattr(spark_replay, "SparkBatch", reprocess_driver.ThreadBatch)
    return reprocess_driver.NoSpark


def dead_letters_for(kafka, topic, count, **changes):
    sessions = made.new_sessions(SESSIONS)
    return [
        dead_letter(
            number, message_id=id_text(id_bytes(sessions[number % SESSIONS], number)), topic=topic,
            cluster_id=kafka.cluster_id, key=b"k%d" % (number % 50), headers=(("n", b"%d" % number),), **changes,
        )
        for number in range(count)
    ]  # fmt: skip


def counts(kafka, topic):
    """Return how often each dead letter is on the topic for a read_committed consumer."""
    return Counter(record.number for record in read(kafka.bootstrap_servers, topic))


def run(spark, kafka, store, **more):
    """Run the job, in one batch unless the test says otherwise; a started operation keeps its plan."""
    plan = {"slices": 3} if "operation_id" in more else {"slices": 3, "canary": 0}
    return reprocess(spark, store, kafka.bootstrap_servers, who="ann", timeout=300, **{**plan, **more})


def settled(store):
    (now,) = replay.list_operations(store, limit=1) or [None]
    return 0 if now is None else now.total - now.left


def produce(kafka, topic, records):
    """Write records with a timestamp of 100 s ago: a probe of a recent dead letter waits for 40 s."""
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
def test_after_kills_of_the_driver_and_of_workers_each_record_is_on_the_topic_once(
    spark, kafka, kcat, topic, store, monkeypatch
):
    """The driver dies before it stores its second batch; then each batch's first task dies in its open transaction."""
    count, batch = 600, 200
    DeadLetters(store).add(dead_letters_for(kafka, topic, count))
    dying = ["-m", "tests.processes.reprocess", kafka.bootstrap_servers, str(store.path), str(batch)]

    died = subprocess.run([sys.executable, *dying], cwd=ROOT, capture_output=True, timeout=120)

    assert died.returncode == -signal.SIGKILL, died.stderr
    (killed,) = replay.list_operations(store)
    assert (killed.acknowledged, killed.left) == (batch, count - batch)
    assert counts(kafka, topic).total() == 2 * batch
    # Release the lease; other tests show that a dead owner's lease expires.
    store.execute("replay_let_go", operation=killed.operation_id, owner=killed.owner)

    monkeypatch.setattr(batches, "task_function", reprocess_driver.dying_worker)
    done = run(spark, kafka, store, operation_id=killed.operation_id, slices=None, wave=batch)

    assert counts(kafka, topic) == Counter(range(count))
    assert len(read(kafka.bootstrap_servers, topic, committed=False)) > count
    assert (done.acknowledged, done.landed, done.left, done.state) == (2 * batch, batch, 0, "done")
    assert done.delivery == "exactly_once"
    assert DeadLetters(store).count(DeadLetterFilter()) == 0
    (job,) = store.rows("jobs")
    assert (job["kind"], job["state"], job["records_done"]) == ("reprocess", "done", count)
    acts = [row["action"] for row in store.rows("replay_audit", operation=killed.operation_id)]
    assert acts.count("replay") == 1


@pytest.mark.kafka
def test_after_a_kill_of_a_driver_that_sent_a_small_batch_each_record_is_on_the_topic_once(
    no_spark, kafka, kcat, topic, store
):
    """Its canary is in the store; the next batch is only on the topic."""
    count = 150
    DeadLetters(store).add(dead_letters_for(kafka, topic, count))
    dying = ["-m", "tests.processes.reprocess", kafka.bootstrap_servers, str(store.path), "1000", "10"]

    died = subprocess.run([sys.executable, *dying], cwd=ROOT, capture_output=True, timeout=120)

    assert died.returncode == -signal.SIGKILL, died.stderr
    (killed,) = replay.list_operations(store)
    assert (killed.acknowledged, counts(kafka, topic).total()) == (10, 111)
    store.execute("replay_let_go", operation=killed.operation_id, owner=killed.owner)

    done = run(no_spark, kafka, store, operation_id=killed.operation_id, slices=None)

    assert counts(kafka, topic) == Counter(range(count))
    assert (done.acknowledged, done.landed, done.left, done.state) == (49, 101, 0, "done")


@pytest.mark.spark
def test_an_export_in_another_store_sends_only_the_missing_records(
    spark, kafka, kcat, topic, store, tmp_path, monkeypatch
):
    """All are uncertain, some are on the topic: Spark finds those, and they are not sent."""
    dead_letters = dead_letters_for(
        kafka, topic, 200, verdict="possibly_persisted", accepted_at=time.time() - 100
    )
    DeadLetters(store).add(dead_letters)
    produce(
        kafka, topic, [(one.value, one.key, delivery_of(one).record_headers) for one in dead_letters[:50]]
    )
    file = tmp_path / "dead-letters.parquet"
    files.export(store, DeadLetterFilter(), file, who="ann", origin="cli")
    elsewhere = Store.open(tmp_path / "elsewhere.duckdb")
    DeadLetters(elsewhere).add([dead_letter(9_000, topic=topic, cluster_id=kafka.cluster_id)])
    seen = CliRunner().invoke(
        main, command(kafka, elsewhere, "--dry-run", "--from-export", str(file)), catch_exceptions=False
    )
    assert json.loads(seen.stdout)["total"] == 200
    assert DeadLetters(elsewhere).count(DeadLetterFilter()) == 1

    import_sources(elsewhere, {}, who="ann", file=file)
    monkeypatch.setattr(record_lookup, "BULK_THRESHOLD", 10)
    done = run(
        spark,
        kafka,
        elsewhere,
        selection=from_sources(DeadLetterFilter(), file=file),
        slice_by="key",
        inconclusive="send",
    )

    assert (done.landed, done.acknowledged, done.state, done.owner) == (50, 150, "done", None)
    assert counts(kafka, topic) == Counter(range(200))
    assert DeadLetters(elsewhere).count(DeadLetterFilter()) == 1
    elsewhere.close()


@pytest.mark.spark
def test_a_failing_replay_stops_at_its_canary_and_the_rest_stays(spark, kafka, store, topic):
    compacted = f"{topic}-c"
    kafka.create_topic(compacted, partitions=1, config={"cleanup.policy": "compact"})
    DeadLetters(store).add([replace(one, key=None) for one in dead_letters_for(kafka, compacted, 40)])

    done = run(spark, kafka, store, canary=3)

    assert done.state == "stopped"
    assert done.failed_again <= 3
    assert DeadLetters(store).count(DeadLetterFilter()) == 40
    assert done.message.startswith("Stopped automatically. The canary failed")


@pytest.mark.kafka
def test_a_spring_dead_letter_topic_is_replayed_to_its_original_topic(no_spark, kafka, kcat, store, topic):
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
        import_sources(store, settings, who="ann", dead_letter_topic=dlt)
    where = from_sources(DeadLetterFilter(), dead_letter_topic=dlt)
    done, again = [run(no_spark, kafka, store, selection=where, inconclusive="send") for _ in range(2)]

    assert (done.acknowledged, done.total, again.total) == (60, 60, 0)
    assert counts(kafka, topic) == Counter(range(60))


@pytest.mark.kafka
def test_the_command_shows_a_dry_run_first_and_reports_a_mistyped_topic(kafka, store, topic):
    """Neither starts Spark: the command starts it only after the confirmation."""
    DeadLetters(store).add(dead_letters_for(kafka, topic, 6) + dead_letters_for(kafka, "gone", 9)[6:])

    refused = CliRunner().invoke(main, command(kafka, store))
    mistyped = CliRunner().invoke(main, command(kafka, store, "--topic", "ordrs"), catch_exceptions=False)

    assert refused.exit_code == 2
    assert "Dry run: 9 records" in refused.stderr
    assert "3 records cannot be sent: the topic gone does not exist." in refused.stderr
    assert "use --yes" in refused.stderr
    assert "Starting" not in refused.stderr
    assert replay.list_operations(store) == []
    assert mistyped.exit_code == 0
    assert (
        f"topic 'ordrs' has no dead letters. Topics with dead letters: {topic} (6), gone (3)."
        in mistyped.stdout
    )


@pytest.mark.kafka
def test_a_replay_is_paused_continued_by_id_and_cancelled(no_spark, kafka, kcat, store, topic):
    DeadLetters(store).add(dead_letters_for(kafka, topic, 600))

    def act(action, count):
        eventually(lambda: settled(store) >= count, 120, every=0.05)
        action(store, replay.live(store)[0].operation_id, who="bob", origin="dashboard")

    def run_and(action, count, **more):
        thread = threading.Thread(target=act, args=(action, count))
        thread.start()
        done = run(no_spark, kafka, store, wave=20, **more)
        thread.join()
        return done

    paused = run_and(replay.pause, 10, rate=60.0)
    assert (paused.state, paused.owner) == ("paused", None)
    assert 0 < paused.left < 600
    assert counts(kafka, topic).total() == 600 - paused.left

    done = run_and(
        replay.cancel, 600 - paused.left + 10, operation_id=paused.operation_id, rate=80.0, slices=None
    )
    sent = counts(kafka, topic)
    assert done.state == "cancelled"
    assert done.ended
    assert set(sent.values()) == {1}
    assert sent.total() == done.acknowledged
    assert DeadLetters(store).count_by(DeadLetterFilter(state=None), "state") == {
        "dead": 600 - sent.total(),
        "replayed": sent.total(),
    }
