"""Loss detection through real librdkafka on the embedded broker: error codes, epochs, retention, duplicates."""

from __future__ import annotations

import uuid

import pytest
from confluent_kafka import Producer

from producer_core import ReliableKafkaProducer, RetryConfig
from producer_core.brokers import embedded
from producer_core.delivery.loss_detection import AckedLogMonitor, KafkaBrokerQueries, RecordQuery
from producer_core.messages import id_bytes
from tests.fixtures.loss_monitor import MonitoredProducer
from tests.support import eventually

SESSION = uuid.uuid4()


@pytest.fixture(scope="module")
def cluster():
    with embedded.start() as running:
        yield running


@pytest.fixture
def topic(cluster):
    name = f"orders-{uuid.uuid4().hex[:8]}"
    cluster.create_topic(name, 2)
    return name


@pytest.fixture
def queries(cluster):
    return KafkaBrokerQueries({"bootstrap.servers": cluster.bootstrap_servers})


def produce(cluster, topic, *values, partition=0, first_seq=0, ids=True):
    """Write records as a producer with SESSION would."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0, "linger.ms": 0})
    for seq, value in enumerate(values, first_seq):
        headers = [("pc-id", id_bytes(SESSION, seq))] if ids else []
        producer.produce(topic, value, partition=partition, headers=headers)
    assert producer.flush(30) == 0


# queries


def test_a_query_returns_both_watermarks_and_the_record_at_the_offset(cluster, topic, queries):
    produce(cluster, topic, b"a", b"b", b"c")

    wanted = [
        RecordQuery(topic, 0, 1),
        RecordQuery(topic, 0, 9),
        RecordQuery(topic, 1, 0),
        RecordQuery(topic, 0, None),
    ]
    # one query per partition and call, so the same partition twice needs two calls
    present, empty = queries.query([wanted[0], wanted[2]], 30)
    (beyond,) = queries.query([wanted[1]], 30)
    (ends,) = queries.query([wanted[3]], 30)

    assert (present.low, present.high, present.found_at, present.found_id, present.problem) == (
        0, 3, 1, id_bytes(SESSION, 1), "",
    )  # fmt: skip
    assert (empty.low, empty.high, empty.found_at) == (0, 0, None)
    assert (beyond.high, beyond.found_at, beyond.problem) == (3, None, "")
    assert (ends.low, ends.high) == (0, 3)
    assert present.exists and present.topic_id == queries.topic_ids([topic], 30)[topic]


def test_a_query_reports_a_topic_that_does_not_exist(queries):
    (view,) = queries.query([RecordQuery("never-made", 0, 5)], 30)

    assert view.exists is False
    assert queries.topic_ids(["never-made"], 30) == {}


def test_an_ambiguous_message_is_looked_up_by_its_id(cluster, topic, queries):
    produce(cluster, topic, b"a", b"b")

    (found,) = queries.query([RecordQuery(topic, 0, 1, f"{SESSION}-0")], 30)
    (absent,) = queries.query([RecordQuery(topic, 0, None, f"{SESSION}-77")], 30)

    assert (found.probe.outcome, found.probe.offset) == ("found", 0)
    assert absent.probe.outcome == "not_found"


def test_a_query_without_a_broker_ends_within_its_timeout():
    queries = KafkaBrokerQueries({"bootstrap.servers": "127.0.0.1:1"})

    (view,) = queries.query([RecordQuery("orders", 0, 5)], 0.5)

    assert view.problem
    assert queries.topic_ids(["orders"], 0.5) == {}


# with messages in flight


def test_an_unknown_producer_without_a_missing_record_is_desynchronised(cluster, topic):
    with MonitoredProducer(cluster.bootstrap_servers, topic) as rig:
        rig.send(3)
        cluster.fail_next(topic, "REQUEST_TIMED_OUT")  # causes a retry, so that the next error is fatal
        cluster.fail_next(topic, "UNKNOWN_PRODUCER_ID")
        rig.send(1)

        finding = rig.loss_monitor.await_finding(topic, 0, 30)

        assert finding.case == "desynchronised"
        assert finding.numbers["last_acknowledged"] >= 2
        eventually(lambda: "producer_desynchronised" in rig.kinds(), 30)
        assert "loss_suspected" not in rig.kinds()


def test_out_of_order_is_a_suspicion_at_once_and_then_resolved(cluster, topic):
    with MonitoredProducer(cluster.bootstrap_servers, topic) as rig:
        rig.send(3)
        cluster.fail_next(topic, "OUT_OF_ORDER_SEQUENCE_NUMBER")
        rig.send(1)

        assert rig.loss_monitor.await_finding(topic, 0, 30).case == "desynchronised"
        eventually(lambda: "producer_desynchronised" in rig.kinds(), 30)
        kinds = [kind for kind in rig.kinds() if kind in ("loss_suspected", "producer_desynchronised")]
        assert kinds == ["loss_suspected", "producer_desynchronised"]
        assert not rig.loss_monitor.lost


def test_retention_explains_an_unknown_producer(cluster, topic):
    with MonitoredProducer(cluster.bootstrap_servers, topic) as rig:
        rig.send(2)
        produce(cluster, topic, *[b"x" * 900_000] * 12, ids=False)  # a mock partition keeps 5 MB
        cluster.fail_next(topic, "REQUEST_TIMED_OUT")
        cluster.fail_next(topic, "UNKNOWN_PRODUCER_ID")
        rig.send(1)

        finding = rig.loss_monitor.await_finding(topic, 0, 30)

        assert finding.case == "retention_removed"
        assert finding.numbers["low_watermark"] > finding.numbers["last_acknowledged"]
        eventually(lambda: "retention_removed" in rig.kinds(), 30)


def test_a_topic_without_acknowledgements_has_nothing_to_lose(cluster, topic):
    with MonitoredProducer(cluster.bootstrap_servers, topic) as rig:
        cluster.fail_next(topic, "OUT_OF_ORDER_SEQUENCE_NUMBER")
        rig.send(1)

        eventually(lambda: "nothing_to_lose" in rig.kinds(), 30)
        assert {finding.case for finding in rig.loss_monitor.findings} == {"nothing_to_lose"}


def test_an_error_that_the_client_does_not_report_shows_as_an_epoch_rise(cluster, topic):
    with MonitoredProducer(cluster.bootstrap_servers, topic) as rig:
        rig.send(2)
        eventually(lambda: rig.eos.get("producer_epoch") == 0, 30)
        cluster.fail_next(topic, "UNKNOWN_PRODUCER_ID")  # on a first transmission: not reported
        rig.send(1)

        eventually(lambda: "epoch_rose" in rig.kinds(), 30)
        rose = next(notice for notice in rig.notices if notice.kind == "epoch_rose")
        assert (rose.details["old"], rose.details["new"], rose.details["failures"]) == (0, 1, {})
        assert rig.failed == []
        eventually(lambda: "intact" in rig.cases(), 30)


def test_a_false_duplicate_is_reported_as_lost(cluster, topic):
    """The mock broker returns this code without having the message; librdkafka reports a success without an offset."""
    with MonitoredProducer(cluster.bootstrap_servers, topic) as rig:
        rig.send(2)
        cluster.fail_next(topic, "DUPLICATE_SEQUENCE_NUMBER")
        rig.send(1)

        eventually(lambda: "acknowledged_lost" in rig.kinds(), 30)
        assert (topic, 0) in rig.loss_monitor.lost
        lost = rig.loss_monitor.lost[topic, 0]
        assert lost.trigger == "duplicate"
        assert "but the log does not have it" in lost.text


def test_an_idle_partition_is_checked_when_it_is_written_again(cluster, topic):
    with MonitoredProducer(cluster.bootstrap_servers, topic, idle=0.0) as rig:
        rig.send(1)
        rig.send(1)

        eventually(lambda: "intact" in rig.cases(), 30)
        assert rig.kinds() == []


def test_after_a_leader_change_earlier_records_are_read_back_and_found(cluster, topic):
    with MonitoredProducer(cluster.bootstrap_servers, topic) as rig:
        rig.send(2)
        eventually(lambda: rig.loss_monitor._leaders._known.get((topic, 0)))
        cluster._mock.lead(topic, 1 if cluster.leader(topic) != 1 else 2)
        rig.send(1)

        finding = eventually(lambda: rig.loss_monitor.findings, 60)[0]
        assert (finding.case, finding.trigger) == ("intact", "leader_changed")
        assert rig.kinds() == []


def test_a_failing_monitor_does_not_affect_delivery(cluster, topic, caplog):
    class Broken(AckedLogMonitor):
        def acknowledged(self, batch):
            raise RuntimeError("broken hook")

    with MonitoredProducer(cluster.bootstrap_servers, topic, monitor_class=Broken) as rig:
        rig.send(5)

        assert [report.error for report in rig.reports] == [None] * 5
    assert "hook failed" in caplog.text


def test_after_a_loss_ambiguous_messages_become_dead_letters_until_the_topic_is_resumed(cluster, topic):
    reports = []
    retry = RetryConfig(max_retries=100, initial_delay_ms=50, max_delay_ms=100)
    config = {"message.timeout.ms": 1000, "linger.ms": 0}
    with ReliableKafkaProducer(cluster.bootstrap_servers, config, retry, store=None) as producer:
        producer.send_message(topic, b"kept", partition=0)
        producer.flush(30)
        cluster.fail_next(topic, "DUPLICATE_SEQUENCE_NUMBER")
        producer.send_message(topic, b"lost", partition=0)
        eventually(lambda: (topic, 0) in producer.loss_monitor.lost, 60)

        cluster.reject(topic, "REQUEST_TIMED_OUT")
        producer.send_message(topic, b"held", partition=0, on_delivery=reports.append)
        eventually(lambda: reports, 60)
        assert reports[0].verdict == "possibly_persisted"
        assert producer.go_on(topic) == 1
        producer.send_message(topic, b"sent", partition=0, on_delivery=reports.append)
        eventually(lambda: producer.retry_manager.get_stats()["total_retries"] > 0, 60)
        cluster.accept(topic)

        eventually(lambda: len(reports) == 2, 60)
    assert reports[1].error is None
