"""The choice of the core: at creation, at run time, and in the statistics."""

from __future__ import annotations

import pytest

from producer_core import ReliableKafkaProducer
from producer_core.brokers import embedded
from producer_core.errors import ConfigError
from producer_core.native import library
from producer_core.testing import InMemoryTransport
from tests.fixtures.native_core import require_core


@pytest.fixture(scope="module")
def broker():
    with embedded.start(brokers=1, topics={"orders": 2}) as started:
        yield started


@pytest.fixture
def open_producer(broker, tmp_path):
    def create(**options):
        return ReliableKafkaProducer(
            broker.bootstrap_servers,
            store=None,
            delivery="exactly_once",
            journal_dir=tmp_path / "j",
            **options,
        )

    return create


def test_a_producer_with_the_native_core_is_switched_to_python_and_back(open_producer):
    require_core()
    reports = []
    with open_producer(core="native") as producer:
        for core in ("native", "python", "native"):
            producer.use_core(core)
            assert producer.get_stats()["core"] == core
            for number in range(50):
                producer.send_message(
                    "orders", {"order": number}, key=str(number), on_delivery=reports.append
                )
            producer.flush(60)
        assert "core_refusal" not in producer.get_stats()
    assert producer.get_stats()["messages_sent"] == len(reports) == 150
    assert {report.error for report in reports} == {None}
    assert len({(report.partition, report.offset) for report in reports}) == 150
    assert all(report.timestamp_ms > 0 and report.latency > 0 for report in reports)


def test_without_the_core_the_statistics_give_the_reason(open_producer, monkeypatch, tmp_path):
    monkeypatch.setattr(library, "CORE_PATH", tmp_path / "core.so")
    library.core_library.cache_clear()
    try:
        with open_producer(core="native") as producer:
            stats = producer.get_stats()
            assert (stats["core"], "no C compiler" in stats["core_refusal"]) == ("python", True)
            producer.use_core("python")
            with pytest.raises(ConfigError, match=r"cannot use the native core\. It was not built"):
                producer.use_core("native")
            producer.send_message("orders", {"order": 1})
            producer.flush(60)
    finally:
        library.core_library.cache_clear()


def test_a_producer_without_transactions_has_no_native_core():
    with ReliableKafkaProducer(store=None, transport=InMemoryTransport) as producer:
        assert producer.get_stats()["core"] == "python"
        producer.use_core("python")
        with pytest.raises(ConfigError, match="cannot use the native core"):
            producer.use_core("native")
        with pytest.raises(ConfigError, match="'fast' is not a known value"):
            producer.use_core("fast")
    with pytest.raises(ConfigError, match="only used for exactly-once delivery"):
        ReliableKafkaProducer(store=None, transport=InMemoryTransport, core="native")
    with pytest.raises(ConfigError, match="is not a known value"):
        ReliableKafkaProducer(store=None, transport=InMemoryTransport, core="fast")


def test_a_transport_that_was_created_for_python_stays_there(open_producer):
    with open_producer() as producer:
        assert producer.get_stats()["core"] == "python"
        with pytest.raises(ConfigError, match="does not have the native core"):
            producer.use_core("native")
