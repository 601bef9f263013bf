"""A broker with TLS, passwords and access control: what a sender and an operator see when something is refused."""

from __future__ import annotations

import contextlib
import itertools
import subprocess
import time

import pytest

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
from tests.conftest import needs
from tests.support import eventually

pytestmark = pytest.mark.kafka

LONG = 45.0
ALONE = {"retry_backoff_ms": 30_000, "retry.backoff.max.ms": 30_000}
"""A client that transmits once only, so that each refusal proves itself however slow this machine is."""


@pytest.fixture(scope="module")
def secured():
    """One node whose clients need TLS, a password and a permission."""
    needs("java", "openjdk-17-jre-headless")
    needs("openssl", "openssl")
    with real.start(secure=True, auto_create=False) as cluster:
        cluster.create_topic("elsewhere", partitions=1)
        yield cluster


@pytest.fixture
def topic(secured, numbers=itertools.count(1)):
    """A topic of this test's own, on which `app2` may do nothing; nor may it anywhere else."""
    name = f"secured-{next(numbers)}"
    secured.create_topic(name, partitions=2)
    yield name
    gone = on(name, "WRITE", "READ", "DESCRIBE") + on("elsewhere", "WRITE")
    secure.revoke(secured.direct_servers, "app2", gone)


class Heard(Hook):
    """The notices, in their order."""

    def __init__(self):
        self.notices = []

    def notice(self, notice):
        self.notices.append(notice)

    def of(self, kind):
        return [notice for notice in self.notices if notice.kind == kind]


@contextlib.contextmanager
def sender(cluster, user, *, heard=None, servers=None, **config):
    with ReliableKafkaProducer(
        servers or cluster.bootstrap_servers,
        {**cluster.security.settings(user), **config},
        RetryConfig(max_retries=0),
        store=None,
        hooks=[heard] if heard else [],
    ) as producer:
        try:
            yield producer
        finally:
            producer.close(timeout=1)  # a client that may not connect has nothing to wait for


def dead(producer):
    return producer.dlq.dead_letters()


def on(topic, *operations):
    return [Permission("topic", topic, operation) for operation in operations]


def grant(cluster, wanted):
    """Returns when the broker acts by it, as `app2` itself sees."""
    secure.grant(cluster.direct_servers, "app2", wanted)
    eventually(lambda: not lacking(cluster, wanted), timeout=LONG)


def revoke(cluster, gone):
    secure.revoke(cluster.direct_servers, "app2", gone)
    eventually(lambda: lacking(cluster, gone) == gone, timeout=LONG)


def lacking(cluster, wanted):
    client = client_config(cluster.bootstrap_servers, cluster.security.settings("app2"))
    topics = sorted({permission.name for permission in wanted})
    return acls.lacking(wanted, acls.Cluster(client).operations(topics, timeout=LONG))


def values(cluster, topic):
    """What an independent reader finds there, over the listener without security."""
    command = ["kcat", "-b", cluster.direct_servers, "-C", "-t", topic, "-e", "-q", "-f", "%s\n"]
    read = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return read.stdout.splitlines()


# who gets in


@pytest.mark.parametrize("user", ["app", "app2"])
def test_with_the_right_password_messages_arrive(secured, topic, user, kcat):
    if user == "app2":
        grant(secured, on(topic, "WRITE"))

    with sender(secured, user) as producer:
        for number in range(100):
            producer.send_message(topic, str(number).encode(), key=number)
        producer.flush(LONG)
        assert producer.get_basic_stats()["messages_sent"] == 100

    assert sorted(map(int, values(secured, topic))) == list(range(100))


def test_a_wrong_password_is_told_while_the_message_still_waits(secured, topic, kcat):
    heard = Heard()
    with sender(secured, "app", heard=heard, **{"sasl.password": "geheim"}) as producer:
        producer.send_message(topic, b"1")

        (notice,) = eventually(lambda: heard.of("connection_refused"), timeout=LONG)[:1]
        assert producer.pending_count == 1  # its 120 s are not over: nobody had to wait for them
        assert (notice.severity, notice.details["code"]) == ("critical", "_AUTHENTICATION")
        assert "Authentication failed" in notice.text
        eventually(lambda: "uthentication failed" in (producer.connection.error or ""), timeout=LONG)
        assert not producer.connection.connected

    assert "geheim" not in repr(heard.notices)
    (dead_letter,) = dead(producer)
    assert dead_letter.verdict == "not_sent"
    assert values(secured, topic) == []


def refusals(secured, folder):
    secure.certify(folder / "other.pem", folder / "other-broker.pem")
    by_address = secured.bootstrap_servers.replace("localhost", "127.0.0.1")
    return {
        "a wrong password": (secured.bootstrap_servers, {"sasl.password": "geheim"}),
        "an authority that does not know the broker": (
            secured.bootstrap_servers,
            {"ssl.ca.location": str(folder / "other.pem")},
        ),
        "a certificate of another name": (by_address, {}),
    }


@pytest.mark.parametrize(
    "case",
    ["a wrong password", "an authority that does not know the broker", "a certificate of another name"],
)
def test_who_is_not_let_in_has_sent_nothing_and_knows_it(secured, topic, case, tmp_path, kcat):
    heard = Heard()
    servers, wrong = refusals(secured, tmp_path)[case]
    with sender(secured, "app", heard=heard, servers=servers, delivery_timeout_ms=3000, **wrong) as producer:
        for number in range(3):
            producer.send_message(topic, str(number).encode())
        eventually(lambda: len(dead(producer)) == 3, timeout=LONG)

    assert heard.of("connection_refused")
    assert {dead_letter.verdict for dead_letter in dead(producer)} == {"not_sent"}
    assert {dead_letter.code for dead_letter in dead(producer)} == {"_MSG_TIMED_OUT"}
    assert values(secured, topic) == []
    with pytest.raises(BrokerUnreachable, match="refuse the connection"):
        acls.check(
            client_config(servers, {**secured.security.settings("app"), **wrong}), [topic], feature="send"
        )


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SASL_PLAINTEXT", "SSL"])
def test_a_wrong_security_protocol_is_told_and_named_as_the_likely_cause(secured, topic, protocol, kcat):
    heard = Heard()
    with sender(secured, "app", heard=heard, **{"security.protocol": protocol}) as producer:
        producer.send_message(topic, b"1")
        (notice,) = eventually(lambda: heard.of("connection_lost"), timeout=LONG)
        assert "security_protocol" in notice.text
        assert producer.pending_count == 1

    assert [dead_letter.verdict for dead_letter in dead(producer)] == ["not_sent"]
    assert values(secured, topic) == []


# who may do what


@pytest.mark.parametrize("allowed", [(), ("DESCRIBE",), ("READ",)])
def test_without_write_a_message_is_dead_at_once_and_safe_to_send_again(secured, topic, allowed, kcat):
    if allowed:
        grant(secured, on(topic, *allowed) + on("elsewhere", "WRITE"))

    with sender(secured, "app2", **ALONE) as producer:
        producer.send_message(topic, b"1")
        (dead_letter,) = eventually(
            lambda: dead(producer), timeout=LONG
        )  # not after the 120 s of its time-out

        assert dead_letter.code == "TOPIC_AUTHORIZATION_FAILED"
        assert dead_letter.verdict in ("not_sent", "rejected")
        assert "Grant WRITE on the topic" in failure_of(dead_letter.code).advice
        assert values(secured, topic) == []

        grant(secured, on(topic, "WRITE"))
        assert replayed(producer, topic) == 1

    assert values(secured, topic) == ["1"]


def test_a_user_who_may_write_nowhere_gets_the_message_back_and_one_notice(secured, topic, kcat):
    grant(secured, on(topic, "READ"))
    heard = Heard()
    with sender(secured, "app2", heard=heard) as producer:
        producer.send_message(topic, b"1")
        (dead_letter,) = eventually(lambda: dead(producer), timeout=LONG)

        assert dead_letter.code in ("CLUSTER_AUTHORIZATION_FAILED", "TOPIC_AUTHORIZATION_FAILED")
        assert dead_letter.verdict == "not_sent"
        assert len(heard.of("fatal_error")) <= 1  # not one for each time that the client is re-created
        grant(secured, on(topic, "WRITE"))
        assert replayed(producer, topic) == 1

    assert values(secured, topic) == ["1"]


def test_a_user_who_may_write_nowhere_may_still_ask(secured, topic):
    """A client that asked for a producer id would be refused one, and break in the middle of its questions."""
    grant(secured, on(topic, "DESCRIBE"))
    config = client_config(secured.bootstrap_servers, secured.security.settings("app2"))
    complaints = []

    asking = admin(config.settings, {"error_cb": complaints.append})
    until = time.monotonic() + 2  # a producer id is asked for, and refused, within half a second
    while time.monotonic() < until:
        assert len(asking.list_topics(topic, timeout=LONG).topics[topic].partitions) == 2
        asking.poll(0.05)

    assert complaints == []
    assert metadata_count(config.settings)(topic, LONG) == 2
    assert cluster_id(config.settings, None, LONG) == cluster_id(config.settings, topic, LONG) is not None


def replayed(producer, topic):
    """Until nothing is dead any more: the client may still believe for a moment that it may not."""
    done = 0
    deadline = time.monotonic() + LONG
    while dead(producer) and time.monotonic() < deadline:
        done += producer.replay_dlq_messages(topic, timeout=LONG, inconclusive="send")
    return done


def test_without_read_the_probe_says_that_it_may_not_look(secured, topic, kcat):
    grant(secured, on(topic, "WRITE"))
    with sender(secured, "app2") as producer:
        message_id = producer.send_message(topic, b"1")
        producer.flush(LONG)

    blind = probe(producer.config.settings, topic, None, message_id, timeout=LONG)
    assert blind.outcome == "inconclusive"
    assert "grant READ" in blind.text

    grant(secured, on(topic, "READ"))
    seen = probe(producer.config.settings, topic, None, message_id, timeout=LONG)
    assert (seen.outcome, seen.offset) == ("found", 0)


def test_a_permission_that_is_taken_and_given_back_in_mid_stream_loses_nothing(secured, topic, kcat):
    grant(secured, on(topic, "WRITE", "READ"))
    with sender(secured, "app2", **ALONE) as producer:
        numbers = itertools.count()

        def send():
            producer.send_message(topic, str(next(numbers)).encode(), key=b"k")

        def sent():
            return producer.get_basic_stats()["messages_sent"]

        for _ in range(50):
            send()
        eventually(lambda: sent() == 50, timeout=LONG)

        revoke(secured, on(topic, "WRITE"))
        eventually(lambda: send() or dead(producer), timeout=LONG)
        grant(secured, on(topic, "WRITE"))
        before = sent()
        eventually(lambda: send() or sent() > before, timeout=LONG)
        producer.flush(LONG)

        refused = dead(producer)
        assert {dead_letter.code for dead_letter in refused} == {"TOPIC_AUTHORIZATION_FAILED"}
        assert {dead_letter.verdict for dead_letter in refused} <= {"not_sent", "rejected"}
        assert replayed(producer, topic) == len(refused)

    assert sorted(map(int, values(secured, topic))) == list(range(next(numbers)))


# what a feature needs, said before anything is sent


def test_the_table_of_permissions_is_what_a_feature_needs(secured, topic):
    client = client_config(secured.bootstrap_servers, secured.security.settings("app2"))

    def missing(feature):
        return acls.check(client, [topic], feature=feature, transactional_id=topic, timeout=LONG)

    for feature in acls.FEATURES:
        needs = acls.needed(feature, [topic], transactional_id=topic)
        assert missing(feature) == needs

        secure.grant(secured.direct_servers, "app2", needs)
        eventually(lambda feature=feature: missing(feature) == [], timeout=LONG)

        secure.revoke(secured.direct_servers, "app2", needs)
        eventually(
            lambda feature=feature: missing(feature) == acls.needed(feature, [topic], transactional_id=topic),
            timeout=LONG,
        )


def test_exactly_once_is_refused_with_the_list_of_what_is_missing(secured, topic):
    grant(secured, on(topic, "WRITE"))
    client = client_config(secured.bootstrap_servers, secured.security.settings("app2"))

    with pytest.raises(BrokerError) as refused:
        acls.require(client, [topic], feature="exactly_once", transactional_id=topic, timeout=LONG)

    assert f"READ on topic {topic} (to read back what the last transaction left)" in str(refused.value)
    assert f"WRITE on transactional id {topic}* (to commit" in str(refused.value)
    assert "WRITE on topic" not in str(refused.value)


def once(cluster, folder, transactional_id, *, transact=False):
    """An exactly-once producer of `app2`, who may use the id when `transact` says so."""
    if transact:
        allowed = Permission("transactional_id", transactional_id, "WRITE", prefixed=True)
        secure.grant(cluster.direct_servers, "app2", [allowed])
        client = client_config(cluster.bootstrap_servers, cluster.security.settings("app2"))
        asked = f"{transactional_id}-asked"
        eventually(lambda: acls.Cluster(client).may_transact(asked, timeout=LONG), timeout=LONG)
    return ReliableKafkaProducer(
        cluster.bootstrap_servers,
        cluster.security.settings("app2"),
        store=None,
        delivery="exactly_once",
        journal_dir=folder,
        transactional_id=transactional_id,
    )


def test_exactly_once_does_not_start_where_its_permissions_are_missing(secured, topic, tmp_path, kcat):
    with pytest.raises(BrokerError, match=rf"WRITE on transactional id {topic}\*"):
        once(secured, tmp_path, topic)

    grant(secured, on(topic, "WRITE", "READ"))
    with once(secured, tmp_path, topic, transact=True) as producer:
        for number in range(20):
            producer.send_message(topic, str(number).encode(), key=number)
        producer.flush(LONG)
    assert sorted(map(int, values(secured, topic))) == list(range(20))


def test_exactly_once_sends_nothing_to_a_topic_it_may_not_read_back(secured, topic, tmp_path, kcat):
    grant(secured, on(topic, "WRITE"))

    with once(secured, tmp_path, topic, transact=True) as producer:
        with pytest.raises(BrokerError, match=f"READ on topic {topic}"):
            producer.send_message(topic, b"1")

    assert values(secured, topic) == []


def test_a_topic_that_nobody_made_lacks_nothing(secured):
    client = client_config(secured.bootstrap_servers, secured.security.settings("app"))
    assert acls.check(client, ["never-made"], feature="replay", timeout=LONG) == []


def test_the_doctor_names_the_permission_and_what_it_is_for(secured, topic):
    grant(secured, on(topic, "WRITE"))

    found = list(
        examine(
            secured.bootstrap_servers,
            secured.security.settings("app2"),
            topics=[topic, "hidden"],
            features=["exactly_once"],
            transactional_id=topic,
            timeout=LONG,
        )
    )

    said = {(finding.check, finding.level, finding.text) for finding in found}
    fixes = [finding.fix for finding in found]
    assert (
        f"topic {topic}",
        "problem",
        "Permissions missing: READ (to read back what the last transaction left).",
    ) in said
    assert f"Grant READ on topic {topic}." in fixes
    assert (
        "topic hidden",
        "problem",
        "The permissions do not allow checking whether the topic exists.",
    ) in said
    assert f"Grant WRITE on transactional ids with the prefix {topic}." in fixes


# the files


def test_keys_and_passwords_are_for_their_owner_only(secured):
    folder = secured.security.folder
    files = list(folder.iterdir())
    assert {file.name for file in files} >= {"ca.pem", "broker.pem", "app.password", "app.properties"}
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {node.settings_file.stat().st_mode & 0o777 for node in secured.nodes} == {0o600}
    assert [file for file in files if "PRIVATE KEY" in file.read_text()] == [secured.security.broker]


def test_an_unknown_user_is_named(secured):
    with pytest.raises(ConfigError, match="There is no user 'nobody'"):
        secured.security.settings("nobody")
