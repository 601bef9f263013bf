"""The commands `send` and `dlq replay` against the embedded broker."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import signal
import socket
import subprocess
import sys
import time

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, TopicPartition

from producer_core.brokers import embedded
from producer_core.cli import main
from producer_core.config import client_config
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.dlq.timeline import timeline
from producer_core.kafka.cluster import Cluster
from producer_core.messages import parse_id
from producer_core.metrics.ack_ledger import entries
from producer_core.metrics.telemetry import decode
from producer_core.producer.producer import ReliableKafkaProducer
from producer_core.replay import list_operations, runners
from producer_core.store import Store, default_path
from tests.support import eventually

COMMAND = (sys.executable, "-m", "producer_core.cli")


@pytest.fixture(scope="module")
def broker():
    with embedded.start(brokers=1, topics={"orders": 2, "payments": 1}) as running:
        yield running


@pytest.fixture
def topic(broker, request):
    name = f"t{abs(hash(request.node.name))}"
    broker.create_topic(name, partitions=2)
    return name


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store.duckdb"


def run(*arguments, stdin=b""):
    return CliRunner().invoke(main, list(map(str, arguments)), input=stdin, catch_exceptions=False)


def send(broker, path, *arguments, stdin=b""):
    return run("send", *arguments, "-b", broker.bootstrap_servers, "--store", path, stdin=stdin)


def summary(done):
    return json.loads(done.stdout)


def records(broker, topic, partitions=2):
    """Return key, value and headers of every record, read by a plain consumer."""
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "t", "auto.offset.reset": "earliest"}
    )
    with contextlib.closing(consumer):
        ends = {
            number: consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=10)[1]
            for number in range(partitions)
        }
        consumer.assign([TopicPartition(topic, number, 0) for number in ends])
        found = []
        while len(found) < sum(ends.values()):
            message = consumer.poll(10)
            assert message is not None
            assert message.error() is None
            found.append((message.key(), message.value(), dict(message.headers() or [])))
        return found


def operations(path):
    return list_operations(Store.open(path)) if path.exists() else []


def dead(path):
    return DeadLetters(Store.open(path)).bodies(DeadLetters(Store.open(path)).ids(DeadLetterFilter()))


def test_json_lines_are_delivered_byte_for_byte(broker, topic, path):
    lines = b'{"id": 1, "price": 1.10}\n{"id": 12345678901234567890123}\n'

    done = send(broker, path, topic, "-", "--key", "id", "--header", "source=test", "--json", stdin=lines)

    assert done.exit_code == 0
    assert summary(done)["acknowledged"] == 2
    found = sorted(records(broker, topic))
    assert [(key, value) for key, value, _ in found] == [
        (b"1", b'{"id": 1, "price": 1.10}'),
        (b"12345678901234567890123", b'{"id": 12345678901234567890123}'),
    ]
    assert all(headers["source"] == b"test" and len(headers["pc-id"]) == 24 for _, _, headers in found)


def test_csv_fields_are_delivered_typed(broker, topic, path, tmp_path):
    file = tmp_path / "a.csv.gz"
    file.write_bytes(gzip.compress(b"id,zip,price,at,ok,note\n1,01067,12.50,2013-01-01 05:00:00,true,\n"))

    assert send(broker, path, topic, file).exit_code == 0

    ((key, value, _),) = records(broker, topic)
    assert key is None
    assert value == b'{"id":1,"zip":"01067","price":12.5,"at":"2013-01-01T05:00:00","ok":true,"note":null}'


def test_malformed_lines_become_dead_letters_with_their_bytes_and_other_lines_are_sent(
    broker, topic, path, tmp_path
):
    file = tmp_path / "a.jsonl"
    file.write_bytes(b'{"id":1}\nnot json\n{"other":2}\n\xff\n{"id":3}\n')

    done = send(broker, path, topic, file, "--key", "id", "--json")

    assert done.exit_code == 1
    assert {"rows": 5, "accepted": 2, "acknowledged": 2, "malformed": 3, "dead": 0}.items() <= summary(
        done
    ).items()
    dead_letters = dead(path)
    assert [(dead_letter.source, dead_letter.value) for dead_letter in dead_letters] == [
        (f'line {line} of a.jsonl, with the field "id" as its key', value)
        for line, value in ((2, b"not json"), (3, b'{"other":2}'), (4, b"\xff"))
    ]
    assert {
        (dead_letter.code, dead_letter.verdict, dead_letter.replayable) for dead_letter in dead_letters
    } == {("malformed", "not_sent", False)}


def test_the_text_summary_names_the_first_malformed_lines(broker, topic, path):
    done = send(broker, path, topic, "-", "--format", "jsonl", stdin=b"nonsense\n1\n")

    text = done.stdout
    assert "malformed 1" in text
    assert "line 1: not JSON" in text
    assert "producer-core dlq groups" in text


def test_strict_stops_at_the_first_malformed_row_and_delivers_the_rows_before_it(broker, topic, path):
    done = send(broker, path, topic, "-", "--strict", "--json", stdin=b"1\n2\nnonsense\n4\n")

    assert done.exit_code == 1
    assert {"acknowledged": 2, "malformed": 0, "last_position": 2}.items() <= summary(done).items()
    assert "line 3" in summary(done)["stopped"]
    assert len(records(broker, topic)) == 2
    assert dead(path) == []


def test_skip_and_limit_select_a_range_of_rows(broker, topic, path):
    done = send(broker, path, topic, "-", "--skip", 1, "--limit", 2, "--json", stdin=b"1\n2\n3\n4\n")

    assert summary(done)["last_position"] == 3
    assert sorted(value for _, value, _ in records(broker, topic)) == [b"2", b"3"]


def test_dedup_suppresses_identical_rows_only(broker, topic, path):
    rows = b'{"a":1,"timestamp":1}\n{"a":1,"timestamp":1}\n{"a":1,"timestamp":2}\n'

    done = send(broker, path, topic, "-", "--dedup", "--json", stdin=rows)

    assert {"accepted": 2, "acknowledged": 2, "duplicates": 1}.items() <= summary(done).items()


def test_a_missing_key_column_sends_nothing(broker, topic, path):
    done = send(broker, path, topic, "-", "--format", "csv", "--key", "nope", stdin=b"id,a\n1,2\n")

    assert done.exit_code == 2
    assert "has no column 'nope'" in done.stderr
    assert records(broker, topic) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["orders", "nothing.csv"], "There is no file"),
        (["or ders", "-"], "not a topic name"),
        (["orders", "-", "-X", "lingr.ms=5"], "Unknown setting"),
        (["orders", "-", "-X", "acks=1"], "conflicts with idempotence"),
        (["orders", "-", "--cluster-id", "other"], "not other"),
        (["orders", "-", "--format", "parquet"], "not a Parquet file"),
    ],
)
def test_a_send_that_cannot_start_prints_an_error_of_at_most_two_lines(broker, path, arguments, message):
    done = send(broker, path, *arguments, stdin=b"1\n")

    assert done.exit_code == 2
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) <= 2


def test_an_unreachable_broker_is_reported_with_the_connection_error(path):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        done = run(
            "send", "orders", "-", "-b", f"127.0.0.1:{unused.getsockname()[1]}", "--store", path, "--wait", "1s",
            stdin=b"1\n",
        )  # fmt: skip

    assert done.exit_code == 2
    assert "Connection refused" in done.stderr
    assert not path.exists()


@pytest.mark.parametrize("resumable", [True, False], ids=["file", "standard input"])
def test_the_ledger_of_a_send_is_in_the_store_and_on_the_telemetry_topic(
    broker, topic, path, tmp_path, resumable
):
    file, rows = tmp_path / "rows.jsonl", b"".join(b'{"n": %d}\n' % number for number in range(50))
    file.write_bytes(rows)
    fleet = f"{topic}-fleet"
    broker.create_topic(fleet, partitions=1)

    done = send(broker, path, topic, file if resumable else "-", "--telemetry-topic", fleet, stdin=rows)

    assert done.exit_code == 0, done.output
    sent = {headers["pc-id"] for _, _, headers in records(broker, topic)}
    batches = [decode(value) for _, value, _ in records(broker, fleet, partitions=1)]
    ledger = [(row.session, seq) for batch in batches for row in batch.ledger for seq, _ in entries(row)]
    assert len(ledger) == 50 and {parse_id(f"{session}-{seq}") for session, seq in ledger} == sent
    with Store.open(path).borrow() as connection:
        assert connection.execute("SELECT sum(count), count(DISTINCT session) FROM ledger").fetchone() == (
            50,
            1,
        )


def test_the_no_store_option_creates_no_store(broker, topic):
    done = run("send", topic, "-", "-b", broker.bootstrap_servers, "--no-store", stdin=b"1\n")

    assert done.exit_code == 0
    assert not default_path().exists()


def test_dead_letters_of_a_send_without_a_store_are_imported_by_the_next_one_with_a_store(broker, topic):
    done = run(
        "send",
        topic,
        "-",
        "--format",
        "jsonl",
        "-b",
        broker.bootstrap_servers,
        "--no-store",
        stdin=b"nonsense\n",
    )
    run("send", topic, "-", "-b", broker.bootstrap_servers, stdin=b"1\n")

    assert "The next producer that uses the store in that folder imports them." in done.stdout
    assert [dead_letter.value for dead_letter in dead(None)] == [b"nonsense"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_send_settles_its_rows_and_reports_its_position(broker, topic, path, number):
    arguments = ["send", topic, "-", "-b", broker.bootstrap_servers, "--store", str(path), "--json"]
    process = subprocess.Popen([*COMMAND, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    process.stdin.write(b"1\n2\n")
    process.stdin.flush()
    eventually(lambda: len(records(broker, topic)) == 2, timeout=60)

    process.send_signal(number)
    out, _ = process.communicate(timeout=60)

    assert process.returncode == 130
    assert {"acknowledged": 2, "last_position": 2, "interrupted": True}.items() <= json.loads(out).items()


def test_a_rejected_message_becomes_a_dead_letter_and_a_replay_delivers_it(broker, path):
    broker.reject("payments")
    # A long retry backoff keeps the verdict at "rejected" on a busy machine too.
    lines = b'{"n":1}\n{"n":2}\n'
    died = send(broker, path, "payments", "-", "--json", "-X", "retry.backoff.ms=20000", stdin=lines)
    broker.accept("payments")

    replayed = run(
        "dlq",
        "replay",
        "--topic",
        "payments",
        "--yes",
        "-b",
        broker.bootstrap_servers,
        "--store",
        path,
        "--json",
    )

    assert (died.exit_code, summary(died)["dead"]) == (1, 2)
    assert replayed.exit_code == 0, replayed.output
    assert json.loads(replayed.stdout)["acknowledged"] == 2
    assert dead(path) == []
    sent = [
        headers["pc-id"] for _, value, headers in records(broker, "payments", partitions=1) if b"n" in value
    ]
    assert len(set(sent)) == len(sent) == 2


def test_a_replay_that_fails_again_is_reported_and_keeps_the_dead_letter(broker, path):
    broker.reject("payments")
    # A long retry backoff keeps the verdict at "rejected" on a busy machine too.
    send(broker, path, "payments", "-", "-X", "retry.backoff.ms=20000", stdin=b'{"n":3}\n')

    again = run("dlq", "replay", "--yes", "-b", broker.bootstrap_servers, "--store", path)
    broker.accept("payments")

    assert again.exit_code == 1
    assert "failed again" in again.stdout
    (dead_letter,) = dead(path)
    assert dead_letter.replay_count == 1


def test_dead_letters_of_another_cluster_are_refused_without_to(broker, path):
    broker.reject("payments")
    send(broker, path, "payments", "-", stdin=b'{"n":4}\n')
    broker.accept("payments")
    with embedded.start(brokers=1, topics={"payments": 1}) as other:
        cluster = Cluster(client_config(other.bootstrap_servers)).view().cluster_id
        command = [
            "dlq",
            "replay",
            "--yes",
            "-b",
            other.bootstrap_servers,
            "--store",
            path,
            "--inconclusive",
            "send",
        ]
        refused = run(*command)
        allowed = run(*command, "--to", cluster)

    assert refused.exit_code == 2
    assert f"--to {cluster}" in refused.stderr
    assert allowed.exit_code == 0, allowed.output


def test_a_running_producer_executes_a_replay_planned_by_a_command_without_credentials(broker, path):
    broker.reject("payments")
    # A long retry backoff keeps the verdict at "rejected" on a busy machine too.
    send(broker, path, "payments", "-", "-X", "retry.backoff.ms=20000", stdin=b'{"n":5}\n')
    broker.accept("payments")
    cluster = Cluster(client_config(broker.bootstrap_servers)).view().cluster_id

    with ReliableKafkaProducer(broker.bootstrap_servers, store=path, cluster_id=cluster):
        eventually(lambda: runners(Store.open(path), time.time()))
        done = run("dlq", "replay", "--topic", "payments", "--yes", "--store", path)

    assert done.exit_code == 0, done.output
    assert "Replayed 1 of 1" in done.stdout
    assert dead(path) == []


def test_an_interrupted_replay_is_paused_and_resumed_by_the_same_command(broker, path):
    broker.reject("payments")
    send(broker, path, "payments", "-", stdin=b"".join(b'{"m":%d}\n' % number for number in range(30)))
    broker.accept("payments")
    arguments = ["dlq", "replay", "--yes", "-b", broker.bootstrap_servers, "--store", str(path)]
    arguments += ["--inconclusive", "send"]
    process = subprocess.Popen(
        [*COMMAND, *arguments, "--rate", "1"], stderr=subprocess.PIPE, stdout=subprocess.PIPE
    )
    # records of uncertain outcome are delayed until no earlier attempt can still arrive
    eventually(lambda: [one for one in operations(path) if one.acknowledged], timeout=180)

    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    paused = operations(path)[0]
    resumed = run(*arguments, "--rate", "100")

    assert process.returncode == 130
    assert (paused.state, paused.total) == ("paused", 30)
    assert "Resume with the same command" in err.decode()
    assert resumed.exit_code == 0
    assert [one.operation_id for one in operations(path)] == [paused.operation_id]
    assert dead(path) == []


def test_stats_json_counts_the_rows_of_a_send(broker, topic, path):
    send(broker, path, topic, "-", stdin=b"1\n2\n3\n")

    found = json.loads(run("stats", "--store", path, "--json").stdout)

    assert found["messages_sent"] == 3
    assert found["topic_stats"][topic]["sent"] == 3


def test_a_terminal_shows_progress_as_a_bar(broker, topic, path, tmp_path):
    file = tmp_path / "a.jsonl"
    file.write_bytes(b'{"n":1}\n' * 2000)
    master, slave = os.openpty()
    process = subprocess.Popen(
        [*COMMAND, "send", topic, str(file), "-b", broker.bootstrap_servers, "--store", str(path)],
        stdout=subprocess.PIPE, stderr=slave,
    )  # fmt: skip
    os.close(slave)
    drawn = b""
    with contextlib.suppress(OSError):  # the terminal ends with the process
        while piece := os.read(master, 65536):
            drawn += piece
    process.communicate(timeout=60)
    os.close(master)

    assert process.returncode == 0
    assert "rows" in drawn.decode()


def shared_file(tmp_path, **settings):
    path = tmp_path / "producer.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return path


def cluster_of(broker):
    """Return the id that the embedded broker tells its clients."""
    return Cluster(client_config(broker.bootstrap_servers)).view().cluster_id


def test_a_producers_file_gives_delivery_application_and_cluster(broker, topic, path, tmp_path):
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"n": 1}\n')
    settings = {"application": "shop", "journal_dir": "/nowhere", "ordering": "key"}
    another = shared_file(tmp_path, **settings, cluster_id="another")
    refused = send(broker, path, topic, rows, "--config-file", another)
    assert refused.exit_code == 2
    assert "another" in refused.output
    once = shared_file(tmp_path, **settings, delivery="exactly_once")
    refused = send(broker, path, topic, rows, "--config-file", once)
    assert refused.exit_code == 2
    assert "so exactly_once is not possible" in refused.output, "the embedded broker has no guarantee"
    file = shared_file(tmp_path, **settings, cluster_id=cluster_of(broker))
    done = send(broker, path, topic, rows, "--config-file", file, "--json")
    assert done.exit_code == 0, done.output
    note = "Note: journal_dir and ordering in --config-file apply to producers, not to this command."
    assert note in done.stderr
    assert [row["application"] for row in Store.open(path).rows("producers")] == ["shop"]


def test_an_option_takes_precedence_over_the_producers_file(broker, topic, path, tmp_path):
    file = shared_file(tmp_path, delivery="exactly_once", cluster_id=cluster_of(broker))
    done = send(
        broker, path, topic, "-", "--config-file", file, "--delivery", "at_least_once", "--json", stdin=b"1\n"
    )
    assert summary(done)["delivery"] == "at_least_once"
    assert "Note" not in done.stderr


def test_a_wrong_delivery_in_the_file_is_an_error(broker, topic, path, tmp_path):
    done = send(
        broker, path, topic, "-", "--config-file", shared_file(tmp_path, delivery="once"), stdin=b"1\n"
    )
    assert done.exit_code == 2
    assert "delivery='once' in --config-file is not valid" in done.output


def test_dead_letters_are_published_to_the_dead_letter_topic(broker, topic, path):
    broker.create_topic(f"{topic}-dlt", partitions=1)
    broker.reject(topic)
    result = send(broker, path, topic, "-", "--dead-letter-topic", "{topic}-dlt", stdin=b'{"n":1}\n{"n":2}\n')
    assert result.exit_code == 1, result.output
    with contextlib.closing(Store.open(path)) as store:
        dead = DeadLetters(store).find(DeadLetterFilter(topic=topic))
        whats = [[event.what for event in timeline(store, one.message_id)][-1] for one in dead]
    assert whats == ["published", "published"]


def test_a_dead_letter_topic_without_a_store_is_refused():
    result = run(
        "send", "orders", "-", "-b", "nowhere:9092", "--no-store", "--dead-letter-topic", "x", stdin=b"1\n"
    )
    assert result.exit_code == 2
    assert "omit --no-store" in result.output


def test_a_producers_file_gives_the_dead_letter_topic(broker, topic, path, tmp_path):
    broker.create_topic(f"{topic}-dlt", partitions=1)
    broker.reject(topic)
    file = shared_file(tmp_path, dead_letter_topic="{topic}-dlt")
    result = send(broker, path, topic, "-", "--config-file", file, stdin=b'{"n":1}\n')
    assert "Note: dead_letter_topic" not in result.output
    assert len(records(broker, f"{topic}-dlt", partitions=1)) == 1


def test_an_invalid_dead_letter_topic_is_refused_before_anything_is_sent(broker, topic, path):
    result = send(broker, path, topic, "-", "--dead-letter-topic", "a b", stdin=b'{"n":1}\n')
    assert result.exit_code == 2
    assert "dead_letter_topic" in result.output
