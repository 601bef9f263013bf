"""A broker that accepts only short-lived tokens: every kind of client obtains, refreshes and waits for them."""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import os
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from producer_core import ReliableKafkaProducer
from producer_core.config import client_config
from producer_core.diagnostics.doctor import examine
from producer_core.errors import TokenUnavailable
from producer_core.kafka import acls
from producer_core.kafka.record_lookup import probe
from tests.fixtures.tokens import LIFETIME_S, SECRET, TokenIssuer, kafka_with_tokens
from tests.support import eventually

pytestmark = pytest.mark.kafka

TIMEOUT_S = 60.0
DURATION_S = float(os.environ.get("PRODUCER_CORE_TOKENS_SECONDS", "160"))
"""Time for which the first test sends, without the start of the broker. `make tokens-long` sets an hour."""
ROUND_S = 110.0
"""Time of one failure of the tokens and one of the broker, on a loaded machine."""


@pytest.fixture(scope="module")
def issuer():
    with TokenIssuer() as running:
        yield running


@pytest.fixture(scope="module")
def cluster(issuer):
    with kafka_with_tokens(issuer, auto_create=False) as running:
        yield running


@pytest.fixture
def topic(cluster, numbers=itertools.count(1)):
    name = f"login-{next(numbers)}"
    cluster.create_topic(name, partitions=2)
    return name


@pytest.fixture
def servers(cluster):
    return {"bootstrap.servers": cluster.bootstrap_servers}


def values(cluster, topic):
    """Return the committed values that an independent consumer reads over the listener without authentication."""
    command = ["kcat", "-b", cluster.direct_servers, "-C", "-t", topic, "-X", "isolation.level=read_committed",
               "-e", "-q", "-f", "%s\n"]  # fmt: skip
    read = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    return read.stdout.splitlines()


def command(*arguments):
    """Run a command and return its standard output."""
    done = subprocess.run(
        [sys.executable, "-m", "producer_core", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, f"{arguments[0]}: {done.stdout}{done.stderr}"
    assert SECRET not in done.stdout + done.stderr
    return done.stdout


class Sending:
    """Send the numbers from 0 to a topic, on a thread, until it is stopped."""

    def __init__(self, producer, topic, *, every=0.02):
        self.accepted = 0
        self._producer, self._topic, self._every = producer, topic, every
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        while not self._stop.wait(self._every):
            self._producer.send_message(self._topic, str(self.accepted).encode(), key=self.accepted % 10)
            self.accepted += 1

    def end(self):
        self._stop.set()
        self._thread.join()

    def acknowledged(self):
        return self._producer.get_basic_stats()["messages_sent"]


@contextmanager
def sending(producer, topic):
    running = Sending(producer, topic)
    try:
        yield running
    finally:
        running.end()


# three minutes


@pytest.mark.timeout(300 + 2 * DURATION_S)
def test_every_kind_of_client_works_with_tokens_of_30_seconds(
    cluster, issuer, servers, topic, tmp_path, kcat, caplog, monkeypatch
):
    """Two producers send all the time. Each kind of client is used, then the tokens fail, then the broker.

    Neither producer closes itself.
    """
    monkeypatch.setenv("PRODUCER_CORE_STORE", str(tmp_path / "store.duckdb"))
    caplog.set_level(logging.INFO)
    for name in ("telemetry", "probed", "rows", "letters"):
        cluster.create_topic(name, partitions=1)
    cluster.create_topic("small", partitions=1, config={"max.message.bytes": "2000"})
    exact = f"{topic}-exactly-once"
    cluster.create_topic(exact, partitions=2)
    started, fetched = time.monotonic(), issuer.fetches.copy()
    with (
        ReliableKafkaProducer(
            {**servers, **issuer.callback_settings()},
            store=tmp_path / "store.duckdb",
            telemetry_topic="telemetry",
            on_severe_errors="stop",
        ) as callback,
        ReliableKafkaProducer(
            {**servers, **issuer.client_credentials()},
            store=None,
            delivery="exactly_once",
            journal_dir=tmp_path / "journal",
            transactional_id=exact,
            on_severe_errors="stop",
        ) as credentials,
        sending(callback, topic) as first,
        sending(credentials, exact) as second,
    ):
        use_each_query(cluster, issuer, topic, callback)
        create_a_dead_letter(callback)
        use_each_command(cluster, issuer, tmp_path)
        replay_the_dead_letter(cluster, callback)
        while True:
            tokens_fail(issuer, callback, (first, second))
            broker_fails(cluster, (first, second))
            left = DURATION_S - (time.monotonic() - started)
            if left < ROUND_S:
                break
        time.sleep(max(0.0, left))
        first.end()
        second.end()
        for producer in (callback, credentials):
            producer.flush(TIMEOUT_S)
        assert len(callback.dlq) == 0
        assert credentials.dlq.dead_letters() == []

    assert len(values(cluster, "small")) == 1
    assert len(values(cluster, "telemetry")) > DURATION_S / 2  # a batch each second
    assert sorted(map(int, values(cluster, topic))) == list(range(first.accepted))
    assert sorted(map(int, values(cluster, exact))) == list(range(second.accepted))
    assert min(first.accepted, second.accepted) > DURATION_S  # it sent all the time
    assert issuer.fetches["callback"] - fetched["callback"] > 4
    assert issuer.fetches["endpoint"] - fetched["endpoint"] > 4
    assert not [token for token in issuer.issued if token in caplog.text]
    assert SECRET not in caplog.text


def use_each_query(cluster, issuer, topic, producer):
    """Use the clients that probe, check permissions and diagnose, each with a new token of the callback."""
    settings = issuer.callback_settings()
    config = client_config(cluster.bootstrap_servers, settings)
    message_id = producer.send_message("probed", b"1")
    producer.flush(TIMEOUT_S)
    assert probe(producer.config.settings, "probed", None, message_id, timeout=TIMEOUT_S).outcome == "found"
    assert acls.check(config, [topic], feature="exactly_once", transactional_id="t", timeout=TIMEOUT_S) == []
    found = examine(
        cluster.bootstrap_servers, settings, topics=[topic], transactional_id="t", timeout=TIMEOUT_S
    )
    assert [finding for finding in found if finding.level == "problem"] == []
    assert topic in producer.list_topics(timeout=TIMEOUT_S).topics


def create_a_dead_letter(producer):
    producer.send_message("small", os.urandom(5000).hex().encode())
    eventually(lambda: len(producer.dlq), timeout=TIMEOUT_S)


def replay_the_dead_letter(cluster, producer):
    """Raise the limit that the message exceeds, and replay it in a transaction."""
    raised = ConfigEntry("max.message.bytes", "100000", incremental_operation=AlterConfigOpType.SET)
    admin = AdminClient({"bootstrap.servers": cluster.direct_servers})
    resource = ConfigResource(ResourceType.TOPIC, "small", incremental_configs=[raised])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(TIMEOUT_S)
    eventually(
        lambda: producer.replay_dlq_messages("small", timeout=TIMEOUT_S, inconclusive="send"),
        timeout=TIMEOUT_S,
    )


def use_each_command(cluster, issuer, folder):
    """Use the commands that connect to the brokers, with client credentials in a file."""
    file = folder / "client.properties"
    settings = {"bootstrap.servers": cluster.bootstrap_servers, **issuer.client_credentials()}
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    rows = folder / "rows.jsonl"
    rows.write_text("".join(f'{{"row": {number}}}\n' for number in range(20)))
    client = ("--config-file", file)
    options = ("--store", folder / "commands.duckdb", *client)

    command("doctor", "--topic", "rows", *options)
    command("send", "rows", rows, *options)
    command("send", "rows", rows, "--delivery", "exactly_once", "--restart", *options)
    assert len(values(cluster, "rows")) == 40
    command("dlq", "publish", "--to-topic", "letters", "--yes", "--store", folder / "store.duckdb", *client)
    assert len(values(cluster, "letters")) == 1
    command("dlq", "fetch", "letters", "--yes", *options)
    assert json.loads(command("dlq", "list", "--json", *options[:2]))["total"] == 1
    collected = json.loads(
        command("telemetry", "collect", "--topic", "telemetry", "--once", "--json", *options)
    )
    assert collected


def tokens_fail(issuer, producer, senders):
    """Break both sources of tokens until the tokens have ended, and expect the senders to wait and to recover."""
    source = producer.config.settings["oauth_cb"]
    working, source._callback = source._callback, refused
    issuer.broken = 503
    with contextlib.ExitStack() as repair:
        repair.callback(setattr, issuer, "broken", None)
        repair.callback(setattr, source, "_callback", working)
        eventually(lambda: not producer.connection.connected, timeout=LIFETIME_S + TIMEOUT_S)
        with pytest.raises(TokenUnavailable, match="PermissionError: the provider is closed"):
            acls.check(producer.config, [], feature="send")
            acls.Cluster(producer.config).view(timeout=5.0)
        time.sleep(5.0)
    recovers(senders)


def refused(_config):
    raise PermissionError("the provider is closed")


def broker_fails(cluster, senders):
    """Stop the broker until the tokens of the connections have ended."""
    cluster.kill(1)
    time.sleep(LIFETIME_S)
    cluster.start_node(1)
    recovers(senders)


def recovers(senders):
    """Wait until each message that was accepted so far is acknowledged."""
    for sender in senders:
        accepted = sender.accepted
        eventually(
            lambda sender=sender, accepted=accepted: sender.acknowledged() >= accepted, timeout=2 * TIMEOUT_S
        )


# what an operator is told


@pytest.mark.parametrize(
    ("case", "check", "text", "fix"),
    [
        ("endpoint", "token", "did not provide a token: Failed to connect", "token.endpoint.url"),
        ("secret", "token", "refused the credentials", "sasl.oauthbearer.client.secret"),
        ("unavailable", "token", "did not provide a token: {", "token.endpoint.url"),
        ("server error", "token", "did not provide a token within 5 s", "token.endpoint.url"),
        ("audience", "cluster", "rejected the token", "audience"),
        ("callback", "token", "oauth_cb raised PermissionError: the provider is closed", "Check oauth_cb"),
        ("none", "token", "oauth_cb returned None", "Check oauth_cb"),
    ],
)
def test_the_doctor_says_whether_the_endpoint_the_credentials_or_the_broker_fails(
    cluster, issuer, case, check, text, fix
):
    name = "sasl.oauthbearer."
    settings = {
        "endpoint": issuer.client_credentials(
            **{f"{name}token.endpoint.url": "http://me:pw@127.0.0.1:1/token"}
        ),
        "secret": issuer.client_credentials(**{f"{name}client.secret": "geheim"}),
        "unavailable": issuer.client_credentials(),
        "server error": issuer.client_credentials(),
        "audience": issuer.callback_settings(lambda _: issuer.issue("other", audience="another-cluster")),
        "callback": issuer.callback_settings(refused),
        "none": issuer.callback_settings(lambda _: None),
    }[case]
    issuer.broken = {"unavailable": 400, "server error": 503}.get(case)
    timeout = 5.0 if case == "server error" else TIMEOUT_S
    try:
        found = list(examine(cluster.bootstrap_servers, settings, store=None, timeout=timeout))
    finally:
        issuer.broken = None

    (problem,) = [finding for finding in found if finding.level == "problem"]
    assert problem.check == check
    assert text in problem.text
    assert fix in problem.fix
    assert not {"geheim", SECRET, "me:pw"} & set(str(found).replace("'", " ").split())
    assert "geheim" not in str(found)
    assert "me:pw" not in str(found)


@pytest.mark.parametrize("source", ["callback", "endpoint"])
def test_the_doctor_says_that_a_token_was_obtained_and_accepted(cluster, issuer, source):
    settings = issuer.callback_settings() if source == "callback" else issuer.client_credentials()
    found = list(examine(cluster.bootstrap_servers, settings, store=None, timeout=TIMEOUT_S))
    (token,) = [finding for finding in found if finding.check == "token"]
    assert token.level == "ok"
    assert "returned a token, and the brokers accepted it" in token.text
    assert not [token for token in issuer.issued if token in str(found)]


def test_a_producer_starts_while_the_endpoint_is_down_and_sends_when_it_is_up(
    cluster, issuer, servers, topic, kcat
):
    issuer.broken = 400
    try:
        with ReliableKafkaProducer(
            {**servers, **issuer.client_credentials()}, store=None, on_severe_errors="stop"
        ) as producer:
            producer.send_message(topic, b"0")
            eventually(lambda: "No token was obtained" in (producer.connection.error or ""), TIMEOUT_S)
            assert not producer.connection.connected
            issuer.broken = None
            producer.flush(TIMEOUT_S)
            assert producer.get_basic_stats()["messages_sent"] == 1
    finally:
        issuer.broken = None
    assert values(cluster, topic) == ["0"]
