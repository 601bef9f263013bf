"""Test the commands on a real Kafka that requires a password and does not create topics, and on three brokers."""

from __future__ import annotations

import json
import subprocess
import sys

import pyarrow
import pyarrow.parquet
import pytest

from producer_core.brokers import kafka as real

SASL = {
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,CLIENT:SASL_PLAINTEXT,DIRECT:PLAINTEXT",
    "listener.name.client.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.client.plain.sasl.jaas.config": (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'user_app="right" user_admin="right";'
    ),
}


def run(*arguments, stdin=""):
    command = [sys.executable, "-m", "producer_core.cli", *map(str, arguments)]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=120, check=False)


def sent(path, *arguments, stdin=""):
    done = run("send", *arguments, "--store", path, "--json", stdin=stdin)
    return done, json.loads(done.stdout or "{}")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store.duckdb"


@pytest.fixture(scope="module")
def secured(kafka):
    """Start a second cluster that requires a password and does not create topics."""
    with real.start(nodes=1, properties=SASL, auto_create=False) as cluster:
        cluster.create_topic("orders", partitions=2)
        yield cluster


def credentials(cluster, tmp_path, password):
    file = tmp_path / "client.properties"
    file.write_text(
        f"bootstrap.servers={cluster.bootstrap_servers}\nsecurity.protocol=SASL_PLAINTEXT\n"
        f"sasl.mechanism=PLAIN\nsasl.username=app\nsasl.password={password}\n"
    )
    return file


@pytest.mark.kafka
def test_a_wrong_password_is_reported_at_once_and_not_printed(secured, path, tmp_path):
    done, _ = sent(
        path, "orders", "-", "--config-file", credentials(secured, tmp_path, "geheim"), stdin="1\n"
    )

    assert done.returncode == 2
    assert "rejected the connection" in done.stderr
    assert "uthentication failed" in done.stderr
    assert "geheim" not in done.stderr
    assert not path.exists()


@pytest.mark.kafka
def test_the_password_of_a_successful_send_is_not_in_the_store(secured, path, tmp_path):
    done, summary = sent(
        path, "orders", "-", "--config-file", credentials(secured, tmp_path, "right"), stdin="1\n"
    )

    assert (done.returncode, summary["acknowledged"]) == (0, 1)
    assert b"right" not in path.read_bytes()


@pytest.mark.kafka
def test_a_missing_topic_without_auto_creation_is_reported_quickly(secured, path, tmp_path):
    done, _ = sent(
        path, "nothing", "-", "--config-file", credentials(secured, tmp_path, "right"), stdin="1\n"
    )

    assert done.returncode == 2
    assert "Topic 'nothing' does not exist" in done.stderr
    assert not path.exists()


@pytest.mark.kafka
def test_the_doctor_warns_that_acks_all_with_one_replica_means_one_disk(kafka, path):
    kafka.create_topic("one-disk", partitions=1)

    done = run("doctor", "-b", kafka.bootstrap_servers, "--topic", "one-disk", "--store", path, "--json")

    found = json.loads(done.stdout)
    texts = [finding["text"] for finding in found["findings"] if finding["check"] == "topic one-disk"]
    assert done.returncode == 0, done.stdout
    assert "an acknowledged message is on only one disk" in texts[0]
    assert "Permissions granted: WRITE, DESCRIBE, READ." in texts


@pytest.mark.kafka
def test_parquet_rows_are_sent_with_their_types(kafka, kcat, path, tmp_path):
    kafka.create_topic("parquet", partitions=1)
    table = pyarrow.table({"id": [1, 2], "at": pyarrow.array([0, None], pyarrow.timestamp("ms", tz="UTC"))})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")

    done, summary = sent(
        path, "parquet", tmp_path / "a.parquet", "--key", "id", "-b", kafka.bootstrap_servers
    )

    read = [kcat, "-b", kafka.bootstrap_servers, "-t", "parquet", "-C", "-e", "-q", "-f", "%k %s\n"]
    lines = subprocess.run(read, capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()
    assert (done.returncode, summary["acknowledged"]) == (0, 2)
    assert lines == ['1 {"id":1,"at":"1970-01-01T00:00:00.000Z"}', '2 {"id":2,"at":null}']


@pytest.mark.kafka
def test_a_too_large_message_is_replayed_once_the_topic_allows_its_size(kafka, kcat, path):
    kafka.create_topic("small", partitions=1, config={"max.message.bytes": "1000"})
    line = '{"x":"' + "".join(f"{number:06d}" for number in range(2000)) + '"}\n'
    died, summary = sent(
        path, "small", "-", "-b", kafka.bootstrap_servers, "-X", "compression.type=none", stdin=line
    )
    kafka.delete_topic("small")
    kafka.create_topic("small", partitions=1)

    replayed = run("dlq", "replay", "--yes", "-b", kafka.bootstrap_servers, "--store", path, "--json")

    read = [kcat, "-b", kafka.bootstrap_servers, "-t", "small", "-C", "-e", "-q", "-f", "%S\n"]
    assert (died.returncode, summary["dead"]) == (1, 1)
    assert replayed.returncode == 0, replayed.stderr
    assert json.loads(replayed.stdout)["acknowledged"] == 1
    assert (
        subprocess.run(read, capture_output=True, text=True, check=True, timeout=60).stdout
        == f"{len(line) - 1}\n"
    )


@pytest.mark.kafka3
def test_the_doctor_reports_how_many_of_three_brokers_may_fail(kafka3, path):
    kafka3.create_topic("safe", partitions=3, config={"min.insync.replicas": "2"})

    done = run("doctor", "-b", kafka3.bootstrap_servers, "--topic", "safe", "--store", path, "--json")

    found = {finding["check"]: finding for finding in reversed(json.loads(done.stdout)["findings"])}
    assert done.returncode == 0, done.stdout
    assert "has 3 brokers" in found["cluster"]["text"]
    assert "1 broker may fail without stopping writes" in found["topic safe"]["text"]
    assert sum(check.startswith("broker ") for check in found) == 3
