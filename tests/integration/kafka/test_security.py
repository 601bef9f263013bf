"""A broker with TLS, passwords and access control: what a producer and an operator see when something is rejected."""

from __future__ import annotations

import contextlib
import itertools
import subprocess
import threading
import time

import pytest
from confluent_kafka import Producer

from producer_core import ReliableKafkaProducer, RetryConfig
from producer_core.brokers import kafka as real
from producer_core.brokers import secure
from producer_core.config import client_config
from producer_core.diagnostics.doctor import examine
from producer_core.errors import BrokerError, BrokerUnreachable, ConfigError
from producer_core.events import Hook
from producer_core.kafka import acls
from producer_core.kafka.acls import Permission
from producer_core.kafka.classify import failure_of
from producer_core.kafka.clients import admin, cluster_id
from producer_core.kafka.partitioner import metadata_count
from producer_core.kafka.record_lookup import probe
from producer_core.pipeline.integrity import ledger_topic
from producer_core.pipeline.integrity.spans import PartitionBounds
from tests.conftest import needs
from tests.support import eventually

pytestmark = pytest.mark.kafka

TIMEOUT_S = 45.0
SINGLE_TRANSMISSION = {"retry_backoff_ms": 30_000, "retry.backoff.max.ms": 30_000}
"""A client that transmits only once, so that every rejection is provable even on a slow machine."""


@pytest.fixture(scope="module")
def secured():
    """One node whose clients need TLS, a password and permissions."""
    needs("java", "openjdk-17-jre-headless")
    needs("openssl", "openssl")
    with real.start(secure=True, auto_create=False) as cluster:
        cluster.create_topic("elsewhere", partitions=1)
        yield cluster


@pytest.fixture
def topic(secured, numbers=itertools.count(1)):
    """A topic for one test. `app2` has no permission on it or on any other topic."""
    name = f"secured-{next(numbers)}"
    secured.create_topic(name, partitions=2)
    yield name
    permissions = topic_permissions(name, "WRITE", "READ", "DESCRIBE") + topic_permissions(
        "elsewhere", "WRITE"
    )
    secure.revoke(secured.direct_servers, "app2", permissions)


class NoticeRecorder(Hook):
    """Record notices in order."""

    def __init__(self):
        self.notices = []

    def notice(self, notice):
        self.notices.append(notice)

    def of(self, kind):
        return [notice for notice in self.notices if notice.kind == kind]


@contextlib.contextmanager
def sender(cluster, user, *, recorder=None, servers=None, **config):
    """Open a producer with the settings of this user; a setting of None is removed."""
    settings = {**cluster.security.settings(user), **config}
    with ReliableKafkaProducer(
        servers or cluster.bootstrap_servers,
        {name: value for name, value in settings.items() if value is not None},
        RetryConfig(max_retries=0),
        store=None,
        hooks=[recorder] if recorder else [],
    ) as producer:
        try:
            yield producer
        finally:
            producer.close(timeout=1)  # a client that is not allowed to connect cannot deliver anything


def dead(producer):
    return producer.dlq.dead_letters()


def topic_permissions(topic, *operations):
    return [Permission("topic", topic, operation) for operation in operations]


def grant(cluster, permissions):
    """Grant permissions and wait until the broker applies them to `app2`."""
    secure.grant(cluster.direct_servers, "app2", permissions)
    eventually(lambda: not missing_permissions(cluster, permissions), timeout=TIMEOUT_S)


def revoke(cluster, permissions):
    secure.revoke(cluster.direct_servers, "app2", permissions)
    eventually(lambda: missing_permissions(cluster, permissions) == permissions, timeout=TIMEOUT_S)


def missing_permissions(cluster, permissions):
    client = client_config(cluster.bootstrap_servers, cluster.security.settings("app2"))
    topics = sorted({permission.name for permission in permissions})
    return acls.missing_permissions(permissions, acls.Cluster(client).operations(topics, timeout=TIMEOUT_S))


def values(cluster, topic):
    """Return the values that an independent consumer reads over the listener without security."""
    command = ["kcat", "-b", cluster.direct_servers, "-C", "-t", topic, "-e", "-q", "-f", "%s\n"]
    read = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return read.stdout.splitlines()


# authentication


@pytest.mark.parametrize("user", ["app", "app2"])
def test_messages_arrive_with_the_right_password(secured, topic, user, kcat):
    if user == "app2":
        grant(secured, topic_permissions(topic, "WRITE"))

    with sender(secured, user) as producer:
        for number in range(100):
            producer.send_message(topic, str(number).encode(), key=number)
        producer.flush(TIMEOUT_S)
        assert producer.get_basic_stats()["messages_sent"] == 100

    assert sorted(map(int, values(secured, topic))) == list(range(100))


def test_a_wrong_password_is_reported_while_the_message_is_still_pending(secured, topic, kcat):
    recorder = NoticeRecorder()
    with sender(secured, "app", recorder=recorder, **{"sasl.password": "geheim"}) as producer:
        producer.send_message(topic, b"1")

        (notice,) = eventually(lambda: recorder.of("connection_refused"), timeout=TIMEOUT_S)[:1]
        assert producer.pending_count == 1  # reported before its 120 s timeout
        assert (notice.severity, notice.details["code"]) == ("critical", "_AUTHENTICATION")
        assert "Authentication failed" in notice.text
        eventually(lambda: "uthentication failed" in (producer.connection.error or ""), timeout=TIMEOUT_S)
        assert not producer.connection.connected

    assert "geheim" not in repr(recorder.notices)
    (dead_letter,) = dead(producer)
    assert dead_letter.verdict == "not_sent"
    assert values(secured, topic) == []


def rejected_connections(secured, folder):
    secure.certify(folder / "other.pem", folder / "other-broker.pem")
    by_address = secured.bootstrap_servers.replace("localhost", "127.0.0.1")
    return {
        "a wrong password": (secured.bootstrap_servers, {"sasl.password": "geheim"}),
        "an authority that did not sign the broker's certificate": (
            secured.bootstrap_servers,
            {"ssl.ca.location": str(folder / "other.pem")},
        ),
        "a certificate for another name": (by_address, {}),
    }


@pytest.mark.parametrize(
    "case",
    [
        "a wrong password",
        "an authority that did not sign the broker's certificate",
        "a certificate for another name",
    ],
)
def test_messages_are_not_sent_when_the_connection_is_rejected(secured, topic, case, tmp_path, kcat):
    recorder = NoticeRecorder()
    servers, wrong = rejected_connections(secured, tmp_path)[case]
    with sender(
        secured, "app", recorder=recorder, servers=servers, delivery_timeout_ms=3000, **wrong
    ) as producer:
        for number in range(3):
            producer.send_message(topic, str(number).encode())
        eventually(lambda: len(dead(producer)) == 3, timeout=TIMEOUT_S)

    assert recorder.of("connection_refused")
    assert {dead_letter.verdict for dead_letter in dead(producer)} == {"not_sent"}
    assert {dead_letter.code for dead_letter in dead(producer)} == {"_MSG_TIMED_OUT"}
    assert values(secured, topic) == []
    with pytest.raises(BrokerUnreachable, match="rejected the connection"):
        acls.check(
            client_config(servers, {**secured.security.settings("app"), **wrong}), [topic], feature="send"
        )


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SASL_PLAINTEXT", "SSL"])
def test_a_wrong_security_protocol_is_reported_as_the_likely_cause(secured, topic, protocol, kcat):
    recorder = NoticeRecorder()
    wrong = {"security.protocol": protocol}
    if not protocol.startswith("SASL"):
        wrong["sasl.mechanism"] = None
    with sender(secured, "app", recorder=recorder, **wrong) as producer:
        producer.send_message(topic, b"1")
        (notice,) = eventually(lambda: recorder.of("connection_lost"), timeout=TIMEOUT_S)
        assert "security_protocol" in notice.text
        assert producer.pending_count == 1

    assert [dead_letter.verdict for dead_letter in dead(producer)] == ["not_sent"]
    assert values(secured, topic) == []


# permissions


@pytest.mark.parametrize("allowed", [(), ("DESCRIBE",), ("READ",)])
def test_without_write_permission_a_message_becomes_a_replayable_dead_letter_at_once(
    secured, topic, allowed, kcat
):
    if allowed:
        grant(secured, topic_permissions(topic, *allowed) + topic_permissions("elsewhere", "WRITE"))

    with sender(secured, "app2", **SINGLE_TRANSMISSION) as producer:
        producer.send_message(topic, b"1")
        # long before its timeout of 120 s
        (dead_letter,) = eventually(lambda: dead(producer), timeout=TIMEOUT_S)

        assert dead_letter.code == "TOPIC_AUTHORIZATION_FAILED"
        assert dead_letter.verdict in ("not_sent", "possibly_persisted")
        assert "Grant WRITE on the topic" in failure_of(dead_letter.code).advice
        assert values(secured, topic) == []

        grant(secured, topic_permissions(topic, "WRITE"))
        assert replay_all(producer, topic) == 1

    assert values(secured, topic) == ["1"]


def test_a_user_without_any_write_permission_causes_a_dead_letter_and_one_notice(secured, topic, kcat):
    grant(secured, topic_permissions(topic, "READ"))
    recorder = NoticeRecorder()
    with sender(secured, "app2", recorder=recorder) as producer:
        producer.send_message(topic, b"1")
        (dead_letter,) = eventually(lambda: dead(producer), timeout=TIMEOUT_S)

        assert dead_letter.code in ("CLUSTER_AUTHORIZATION_FAILED", "TOPIC_AUTHORIZATION_FAILED")
        assert dead_letter.verdict == "not_sent"
        assert len(recorder.of("fatal_error")) <= 1  # not one for every recreation of the client
        grant(secured, topic_permissions(topic, "WRITE"))
        assert replay_all(producer, topic) == 1

    assert values(secured, topic) == ["1"]


def test_a_user_without_any_write_permission_can_query(secured, topic):
    """A client that requests a producer id would be rejected and fail in the middle of its queries."""
    grant(secured, topic_permissions(topic, "DESCRIBE"))
    config = client_config(secured.bootstrap_servers, secured.security.settings("app2"))
    complaints = []

    client = admin(config.settings, {"error_cb": complaints.append})
    deadline = time.monotonic() + 2  # a producer id is requested and rejected within half a second
    while time.monotonic() < deadline:
        assert len(client.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions) == 2
        client.poll(0.05)

    assert complaints == []
    assert metadata_count(config.settings)(topic, TIMEOUT_S) == 2
    assert (
        cluster_id(config.settings, None, TIMEOUT_S)
        == cluster_id(config.settings, topic, TIMEOUT_S)
        is not None
    )


def replay_all(producer, topic):
    """Replay until there are no dead letters: the client may still have outdated permissions for a moment."""
    done = 0
    deadline = time.monotonic() + TIMEOUT_S
    while dead(producer) and time.monotonic() < deadline:
        done += producer.replay_dlq_messages(topic, timeout=TIMEOUT_S, inconclusive="send")
    return done


def test_without_read_permission_a_probe_is_inconclusive_and_names_it(secured, topic, kcat):
    grant(secured, topic_permissions(topic, "WRITE"))
    with sender(secured, "app2") as producer:
        message_id = producer.send_message(topic, b"1")
        producer.flush(TIMEOUT_S)

    denied = probe(producer.config.settings, topic, None, message_id, timeout=TIMEOUT_S)
    assert denied.outcome == "inconclusive"
    assert "grant READ" in denied.text

    grant(secured, topic_permissions(topic, "READ"))
    allowed = probe(producer.config.settings, topic, None, message_id, timeout=TIMEOUT_S)
    assert (allowed.outcome, allowed.offset) == ("found", 0)


def test_revoking_and_granting_a_permission_while_sending_loses_no_message(secured, topic, kcat):
    grant(secured, topic_permissions(topic, "WRITE", "READ"))
    with sender(secured, "app2", **SINGLE_TRANSMISSION) as producer:
        numbers = itertools.count()

        def send():
            producer.send_message(topic, str(next(numbers)).encode(), key=b"k")

        def sent():
            return producer.get_basic_stats()["messages_sent"]

        for _ in range(50):
            send()
        eventually(lambda: sent() == 50, timeout=TIMEOUT_S)

        revoke(secured, topic_permissions(topic, "WRITE"))
        eventually(lambda: send() or dead(producer), timeout=TIMEOUT_S)
        grant(secured, topic_permissions(topic, "WRITE"))
        before = sent()
        eventually(lambda: send() or sent() > before, timeout=TIMEOUT_S)
        producer.flush(TIMEOUT_S)

        rejected = dead(producer)
        assert {dead_letter.code for dead_letter in rejected} == {"TOPIC_AUTHORIZATION_FAILED"}
        assert {dead_letter.verdict for dead_letter in rejected} <= {"not_sent", "possibly_persisted"}
        assert replay_all(producer, topic) == len(rejected)

    assert sorted(map(int, values(secured, topic))) == list(range(next(numbers)))


def test_an_audit_reads_a_ledger_topic_without_permission_for_a_consumer_group(secured, topic):
    """The client reports that it may not use its group, while the read goes on."""
    producer = Producer({"bootstrap.servers": secured.direct_servers})

    def write_record():
        producer.produce(topic, b"{}", partition=0)
        assert producer.flush(60) == 0

    write_record()
    grant(secured, topic_permissions(topic, "READ"))
    settings = client_config(secured.bootstrap_servers, secured.security.settings("app2")).settings
    later = threading.Timer(5, write_record)
    later.start()
    tables = list(ledger_topic.telemetry(settings, topic, {0: PartitionBounds(0, 2, 2)}))
    later.join()

    assert sum(table.num_rows for table in tables) == 2


# permissions of features, checked before sending


def test_the_table_lists_exactly_the_permissions_that_each_feature_needs(secured, topic):
    client = client_config(secured.bootstrap_servers, secured.security.settings("app2"))

    def missing(feature):
        return acls.check(client, [topic], feature=feature, transactional_id=topic, timeout=TIMEOUT_S)

    for feature in acls.FEATURES:
        needs = acls.required_permissions(feature, [topic], transactional_id=topic)
        assert missing(feature) == needs

        secure.grant(secured.direct_servers, "app2", needs)
        eventually(lambda feature=feature: missing(feature) == [], timeout=TIMEOUT_S)

        secure.revoke(secured.direct_servers, "app2", needs)
        eventually(
            lambda feature=feature: (
                missing(feature) == acls.required_permissions(feature, [topic], transactional_id=topic)
            ),
            timeout=TIMEOUT_S,
        )


def test_exactly_once_is_rejected_with_a_list_of_missing_permissions(secured, topic):
    grant(secured, topic_permissions(topic, "WRITE"))
    client = client_config(secured.bootstrap_servers, secured.security.settings("app2"))

    with pytest.raises(BrokerError) as rejected:
        acls.require(client, [topic], feature="exactly_once", transactional_id=topic, timeout=TIMEOUT_S)

    assert f"READ on topic {topic} (to read back the records of the last transaction)" in str(rejected.value)
    assert f"WRITE on transactional id {topic}* (to commit" in str(rejected.value)
    assert "WRITE on topic" not in str(rejected.value)


def exactly_once_producer(cluster, folder, transactional_id, *, transact=False):
    """Return an exactly-once producer of `app2`; `transact` grants it the transactional id."""
    if transact:
        allowed = Permission("transactional_id", transactional_id, "WRITE", prefixed=True)
        secure.grant(cluster.direct_servers, "app2", [allowed])
        client = client_config(cluster.bootstrap_servers, cluster.security.settings("app2"))
        probe_id = f"{transactional_id}-asked"
        eventually(lambda: acls.Cluster(client).may_transact(probe_id, timeout=TIMEOUT_S), timeout=TIMEOUT_S)
    return ReliableKafkaProducer(
        cluster.bootstrap_servers,
        cluster.security.settings("app2"),
        store=None,
        delivery="exactly_once",
        journal_dir=folder,
        transactional_id=transactional_id,
    )


def test_exactly_once_does_not_start_without_its_permissions(secured, topic, tmp_path, kcat):
    with pytest.raises(BrokerError, match=rf"WRITE on transactional id {topic}\*"):
        exactly_once_producer(secured, tmp_path, topic)

    grant(secured, topic_permissions(topic, "WRITE", "READ"))
    with exactly_once_producer(secured, tmp_path, topic, transact=True) as producer:
        for number in range(20):
            producer.send_message(topic, str(number).encode(), key=number)
        producer.flush(TIMEOUT_S)
    assert sorted(map(int, values(secured, topic))) == list(range(20))


def test_exactly_once_sends_nothing_to_a_topic_without_read_permission(secured, topic, tmp_path, kcat):
    grant(secured, topic_permissions(topic, "WRITE"))

    with exactly_once_producer(secured, tmp_path, topic, transact=True) as producer:
        with pytest.raises(BrokerError, match=f"READ on topic {topic}"):
            producer.send_message(topic, b"1")

    assert values(secured, topic) == []


def test_a_missing_topic_is_not_reported_as_a_missing_permission(secured):
    client = client_config(secured.bootstrap_servers, secured.security.settings("app"))
    assert acls.check(client, ["never-made"], feature="replay", timeout=TIMEOUT_S) == []


def test_the_doctor_names_the_permission_and_its_purpose(secured, topic):
    grant(secured, topic_permissions(topic, "WRITE"))

    found = list(
        examine(
            secured.bootstrap_servers,
            secured.security.settings("app2"),
            topics=[topic, "hidden"],
            features=["exactly_once"],
            transactional_id=topic,
            timeout=TIMEOUT_S,
        )
    )

    findings = {(finding.check, finding.level, finding.text) for finding in found}
    fixes = [finding.fix for finding in found]
    assert (
        f"topic {topic}",
        "problem",
        "Permissions missing: READ (to read back the records of the last transaction).",
    ) in findings
    assert f"Grant READ on topic {topic}." in fixes
    assert (
        "topic hidden",
        "problem",
        "The permissions do not allow checking whether the topic exists.",
    ) in findings
    assert f"Grant WRITE on transactional ids with the prefix {topic}." in fixes


# files


def test_only_the_owner_can_read_keys_and_passwords(secured):
    folder = secured.security.folder
    files = list(folder.iterdir())
    assert {file.name for file in files} >= {"ca.pem", "broker.pem", "app.password", "app.properties"}
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {node.settings_file.stat().st_mode & 0o777 for node in secured.nodes} == {0o600}
    assert [file for file in files if "PRIVATE KEY" in file.read_text()] == [secured.security.broker]


def test_an_unknown_user_is_named(secured):
    with pytest.raises(ConfigError, match="Unknown user 'nobody'"):
        secured.security.settings("nobody")
