"""A real Kafka started by the package: it works, survives kills and restarts, and leaves no processes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from threading import Thread

import psutil
import pytest
from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from producer_core import ReliableKafkaProducer
from producer_core.brokers import jars, kafka, layout, secure
from producer_core.brokers.java import find_java
from producer_core.config import client_config
from producer_core.errors import BrokerError, ConfigError, MissingTool
from producer_core.events import Hook
from producer_core.kafka.cluster import Cluster
from producer_core.kafka.replication import ReplicationWatch
from tests.support import eventually


def send(servers, topic, count=1, timeout=60):
    """Return how many of `count` messages were acknowledged."""
    acknowledged = []
    producer = Producer({"bootstrap.servers": servers, "log_level": 0})
    for number in range(count):
        producer.produce(topic, str(number).encode(), on_delivery=lambda e, m: e or acknowledged.append(m))
    producer.flush(timeout)
    return len(acknowledged)


def high_watermark(servers, topic, partition=0):
    reader = KafkaConsumer({"bootstrap.servers": servers, "group.id": "look", "log_level": 0})
    try:
        return reader.get_watermark_offsets(TopicPartition(topic, partition), timeout=20)[1]
    finally:
        reader.close()


class Relay:
    """Forwards bytes to one address in both directions, and counts the connections."""

    def __init__(self, target):
        self.connections = 0
        self._target = target
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = self._server.getsockname()
        Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            client, _ = self._server.accept()
            self.connections += 1
            upstream = socket.create_connection(self._target)
            for one, other in ((client, upstream), (upstream, client)):
                Thread(target=self._pass_on, args=(one, other), daemon=True).start()

    def _pass_on(self, one, other):
        with contextlib.suppress(OSError):
            while data := one.recv(1 << 16):
                other.sendall(data)
        other.close()


def brokers_under(folder):
    """Return the broker processes whose settings are below this folder."""
    return [
        process
        for process in psutil.process_iter(["cmdline"])
        if "kafka.Kafka" in (words := process.info["cmdline"] or []) and str(folder) in words[-1]
    ]


def registries_under(folder):
    """Return the registry processes whose schemas are below this folder."""
    return [
        process
        for process in psutil.process_iter(["cmdline"])
        if any(f"h2:file:{folder}" in word for word in process.info["cmdline"] or [])
    ]


@pytest.mark.kafka
def test_a_node_keeps_its_data_over_a_restart(tmp_path):
    with kafka.start(folder=tmp_path / "kafka") as cluster:
        cluster.create_topic("orders", partitions=1, config={"retention.ms": "3600000"})
        assert send(cluster.bootstrap_servers, "orders", 100) == 100
        assert send(cluster.bootstrap_servers, "made-by-use") == 1

        cluster.stop_node(1)
        assert not cluster.alive(1)
        cluster.start_node(1)

        assert high_watermark(cluster.direct_servers, "orders") == 100
        cluster.delete_topic("orders")
        with pytest.raises(BrokerError, match="Node 2 does not exist"):
            cluster.kill(2)
        first_id = cluster.cluster_id
    assert brokers_under(tmp_path) == []

    with kafka.start(folder=tmp_path / "kafka") as cluster:
        assert cluster.cluster_id == first_id
        assert send(cluster.bootstrap_servers, "made-by-use") == 1
    with pytest.raises(BrokerError, match="data of 1 node, not of 3"):
        kafka.start(nodes=3, folder=tmp_path / "kafka")


@pytest.mark.kafka
def test_properties_override_the_defaults_and_auto_creation_can_be_disabled():
    with kafka.start(auto_create=False, properties=lambda node: {"num.partitions": "7"}) as cluster:
        assert "num.partitions=7" in cluster.nodes[0].settings_file.read_text()
        assert send(cluster.bootstrap_servers, "never-made", timeout=2) == 0
        with pytest.raises(BrokerError, match="did not create topic"):
            cluster.create_topic("bad/name")
        folder = cluster.folder
    assert not folder.exists()


@pytest.mark.kafka
def test_clients_can_be_routed_through_a_proxy():
    passed = []

    def relay_for(node):
        passed.append(relay := Relay(("127.0.0.1", node.port)))
        return relay.address

    with kafka.start(advertise=relay_for) as cluster:
        assert cluster.bootstrap_servers == "{}:{}".format(*passed[0].address)
        cluster.create_topic("orders", partitions=1)
        assert passed[0].connections == 0

        assert send(cluster.bootstrap_servers, "orders", 10) == 10

        assert passed[0].connections > 0
        assert high_watermark(cluster.direct_servers, "orders") == 10


def test_addresses_can_be_advertised_for_some_nodes_only(tmp_path):
    nodes = kafka.advertised(layout.plan(2, tmp_path), {2: ("proxy", 1234)})
    assert [node.address for node in nodes] == [f"127.0.0.1:{nodes[0].port}", "proxy:1234"]
    assert f"CLIENT://{nodes[1].listens}," in layout.settings(nodes[1], nodes, auto_create=True)["listeners"]


@pytest.mark.kafka
def test_the_error_of_a_broker_that_cannot_start_has_the_end_of_its_log():
    with pytest.raises(BrokerError, match=r"(?s)could not be formatted|Broker 1 ended.*log\.segment\.bytes"):
        kafka.start(properties={"log.segment.bytes": "not a number"})


@pytest.mark.kafka
def test_brokers_end_when_their_process_is_killed(tmp_path):
    script = (
        "import sys, time; from producer_core.brokers import kafka\n"
        "cluster = kafka.start(); print(cluster.folder, flush=True); time.sleep(600)"
    )
    owner = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    folder = Path(owner.stdout.readline().strip())
    assert len(brokers_under(folder)) == 1

    owner.kill()
    owner.communicate()

    eventually(lambda: not brokers_under(folder) and not folder.exists(), timeout=60)


@pytest.mark.kafka3
def test_three_nodes_continue_without_a_killed_one_and_accept_it_again():
    with kafka.start(nodes=3) as cluster:
        cluster.create_topic("orders", partitions=6)
        assert send(cluster.bootstrap_servers, "orders", 300) == 300

        cluster.kill(2)
        assert [cluster.alive(number) for number in (1, 2, 3)] == [True, False, True]
        assert send(cluster.bootstrap_servers, "orders", 300) == 300
        cluster.start_node(2)
        cluster.pause(3)
        with pytest.raises(BrokerError):
            cluster.start_node(3)
        cluster.resume(3)

        assert send(cluster.bootstrap_servers, "orders", 300) == 300
        total = sum(high_watermark(cluster.direct_servers, "orders", each) for each in range(6))
        assert total == 900
    assert brokers_under(cluster.folder) == []


def command(*words, state, check=True):
    return subprocess.run(
        [sys.executable, "-m", "producer_core.cli", "broker", *words],
        env={**os.environ, "XDG_STATE_HOME": str(state)},
        capture_output=True,
        text=True,
        check=check,
    )


@pytest.mark.kafka
def test_broker_start_leaves_a_broker_running_until_broker_stop(tmp_path):
    assert command("status", state=tmp_path, check=False).returncode == 1
    try:
        started = json.loads(command("start", "--json", state=tmp_path).stdout)
        assert send(started["bootstrap_servers"], "orders", 10) == 10

        again = command("start", "--json", "--nodes", "3", state=tmp_path)
        assert json.loads(again.stdout) == started
        assert "already running with 1 node" in again.stderr

        status = command("status", "--json", state=tmp_path)
        assert json.loads(status.stdout) == started
        assert command("status", "--servers", state=tmp_path).stdout.strip() == started["bootstrap_servers"]
        place = tmp_path / "producer-core" / "broker"
        assert (place.stat().st_mode & 0o777, (place / "state.json").stat().st_mode & 0o777) == (0o700, 0o600)
    finally:
        stopped = command("stop", state=tmp_path)

    assert "Stopped 1 broker" in stopped.stdout
    assert brokers_under(tmp_path) == []
    assert not (place / "data").exists()
    assert command("status", state=tmp_path, check=False).returncode == 1
    assert command("stop", state=tmp_path).returncode == 0


def subjects(url):
    with SchemaRegistryClient({"url": url, "timeout": 30}) as client:
        return client.get_subjects()


@pytest.mark.schema_registry
def test_a_schema_registry_runs_beside_the_broker_and_keeps_its_schemas_with_the_data(tmp_path):
    start = ("start", "--schema-registry", "--folder", str(tmp_path / "data"), "--json")
    try:
        started = json.loads(command(*start, state=tmp_path).stdout)
        assert json.loads(command("status", "--json", state=tmp_path).stdout) == started
        assert started["schema_registry_url"] in command("status", state=tmp_path).stdout
        with SchemaRegistryClient({"url": started["schema_registry_url"], "timeout": 30}) as client:
            client.register_schema("orders-value", Schema('{"type": "string"}', "AVRO"))
        command("stop", state=tmp_path)
        assert brokers_under(tmp_path) == []

        again = json.loads(command(*start, state=tmp_path).stdout)
        assert again["cluster_id"] == started["cluster_id"]
        assert subjects(again["schema_registry_url"]) == ["orders-value"]
        state = json.loads((tmp_path / "producer-core" / "broker" / "state.json").read_text())
        os.kill(state["registry"]["pid"], signal.SIGKILL)
        eventually(lambda: " ended; its log is " in command("status", state=tmp_path).stdout)
    finally:
        command("stop", state=tmp_path)
    assert not registries_under(tmp_path)


@pytest.mark.kafka
def test_broker_start_secure_creates_users_whose_acls_the_command_line_changes(tmp_path):
    def cli(*words, check=True):
        return subprocess.run(
            [sys.executable, "-m", "producer_core.cli", *map(str, words)],
            env={**os.environ, "XDG_STATE_HOME": str(tmp_path)},
            input='{"n":1}\n',
            capture_output=True,
            text=True,
            check=check,
        )

    def doctor_of_app2():
        return cli("doctor", "--config-file", users["app2"]["config_file"], "--topic", "orders", check=False)

    try:
        started = json.loads(cli("broker", "start", "--secure", "--json").stdout)
        users = {user["name"]: user for user in started["users"]}
        assert started["bootstrap_servers"].startswith("localhost:")
        assert started["username"] == "app"
        for file in (started["ca"], started["password_file"], started["config_file"]):
            assert Path(file).stat().st_mode & 0o777 == 0o600
        passwords = [Path(user["password_file"]).read_text().strip() for user in users.values()]
        running = " ".join(" ".join(p.info["cmdline"] or []) for p in psutil.process_iter(["cmdline"]))
        assert not any(password in running for password in passwords)
        assert cli("broker", "status", "--config-file").stdout.strip() == started["config_file"]
        assert json.loads(cli("broker", "status", "--json").stdout) == started

        sent = cli("send", "orders", "-", "--config-file", started["config_file"], "--json")
        assert json.loads(sent.stdout)["acknowledged"] == 1

        assert "Permissions missing: WRITE (to send)" in doctor_of_app2().stdout
        granted = cli("broker", "grant", "app2", "replay", "orders").stdout.splitlines()
        assert "app2: granted READ on topic orders" in granted
        eventually(
            lambda: "Permissions granted: WRITE, DESCRIBE, READ." in doctor_of_app2().stdout, timeout=60
        )
        cli("broker", "revoke", "app2", "replay", "orders")
        eventually(lambda: doctor_of_app2().returncode == 1, timeout=60)

        unknown = cli("broker", "grant", "app9", "send", "orders", check=False)
        assert (unknown.returncode, "Use admin, app or app2" in unknown.stderr) == (2, True)
    finally:
        cli("broker", "stop")
    assert cli("broker", "grant", "app2", "send", "orders", check=False).returncode == 2
    assert not Path(started["ca"]).exists()


@pytest.mark.kafka
def test_a_secured_broker_with_a_folder_keeps_its_passwords(tmp_path):
    seen = []
    for _ in range(2):
        with kafka.start(folder=tmp_path / "kafka", secure=True) as cluster:
            user = cluster.security.settings("app2")
            client = client_config(cluster.bootstrap_servers, user)
            assert Cluster(client).operations(["orders"], timeout=60)["orders"] == frozenset()
            seen.append((user["sasl.password"], cluster.security.ca.read_bytes()))
    assert seen[0] == seen[1]


def test_without_openssl_the_error_names_the_package(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingTool, match="apt-get install openssl"):
        secure.create_security(tmp_path / "security")


@pytest.mark.kafka
def test_a_producer_reports_weak_replication_on_a_single_node(kafka):
    class Notices(Hook):
        def notice(self, notice):
            notices.append(notice)

    notices = []
    kafka.create_topic("alone", partitions=1)
    with ReliableKafkaProducer(kafka.bootstrap_servers, store=None, hooks=[Notices()]) as producer:
        producer.send_message("alone", b"1")
        eventually(lambda: any(notice.kind == "weak_replication" for notice in notices), timeout=60)
        producer.flush(60)
        assert producer.get_basic_stats()["messages_sent"] == 1  # a warning does not block sending


@pytest.mark.kafka3
def test_topics_with_a_weak_acks_all_guarantee_are_reported(kafka3):
    notices = []
    watch = ReplicationWatch(client_config(kafka3.bootstrap_servers), notices.append)
    kafka3.create_topic("one-copy", partitions=1, replicas=1)
    kafka3.create_topic("one-in-sync", partitions=1, config={"min.insync.replicas": "1"})
    kafka3.create_topic("two-in-sync", partitions=1)

    for number, topic in enumerate(("two-in-sync", "one-copy", "one-in-sync")):
        watch.check(topic)  # alone: topics that are checked together have one notice
        eventually(lambda: watch._thread is None, timeout=60)
        assert len(notices) == number

    assert {notice.details["topic"]: notice.details["strength"] for notice in notices} == {
        "one-copy": "one_copy",
        "one-in-sync": "one_copy_at_times",
    }


@pytest.mark.kafka
def test_a_killed_broker_is_shown_as_ended_and_can_be_started_again(tmp_path):
    try:
        port = layout.plan(1, tmp_path)[0].port
        started = json.loads(command("start", "--json", "--port", str(port), state=tmp_path).stdout)
        assert started["bootstrap_servers"] == f"127.0.0.1:{port}"
        os.kill(started["nodes"][0]["pid"], signal.SIGKILL)
        eventually(lambda: not psutil.pid_exists(started["nodes"][0]["pid"]))

        status = command("status", state=tmp_path, check=False)
        assert (status.returncode, "ended" in status.stdout) == (1, True)

        anew = json.loads(command("start", "--json", state=tmp_path).stdout)
        assert anew["cluster_id"] != started["cluster_id"]
    finally:
        command("stop", state=tmp_path)
    assert brokers_under(tmp_path) == []


def test_the_error_for_a_port_in_use_names_it():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(BrokerError, match=f"Port {taken.getsockname()[1]} is in use"):
            layout.plan(1, Path("unused"), port=taken.getsockname()[1])


def test_without_java_the_error_names_the_package(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(MissingTool, match=r"none was found.*openjdk-17-jre-headless"):
        find_java()


def test_an_old_java_is_rejected_with_its_version(monkeypatch, tmp_path):
    old = tmp_path / "bin" / "java"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_402\"' >&2\n")
    old.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(MissingTool, match="is version 8"):
        find_java()


def test_without_jgo_the_error_names_the_extra(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setitem(sys.modules, "jgo.env", None)
    with pytest.raises(MissingTool, match=r"producer-core\[broker\]"):
        jars.fetch()


def test_a_fetch_without_a_network_leaves_no_files(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    with pytest.raises(BrokerError, match=r"could not be fetched.*producer-core broker fetch"):
        jars.fetch()
    assert not jars.folder().exists()
    assert [path.name for path in jars.folder().parent.iterdir()] == [jars.folder().with_suffix(".lock").name]


def test_a_cluster_without_nodes_is_rejected(tmp_path):
    with pytest.raises(ConfigError):
        kafka.check_folder(tmp_path, 0)


def test_cluster_ids_are_unique_and_never_start_with_a_dash():
    ids = {layout.new_cluster_id() for _ in range(500)}
    assert len(ids) == 500
    assert not any(each.startswith("-") for each in ids)
    assert {len(each) for each in ids} == {22}
