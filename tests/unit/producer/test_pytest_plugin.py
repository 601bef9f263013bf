"""The fixtures that a test of an application gets, in a pytest of its own."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.support import ROOT

APPLICATION_TESTS = """
import pytest

from producer_core import ReliableKafkaProducer

@pytest.fixture(scope="session", autouse=True)
def timeouts_of_closes():
    close, timeouts = ReliableKafkaProducer.close, []
    ReliableKafkaProducer.close = lambda self, timeout=30.0: (timeouts.append(timeout), close(self, timeout))
    yield
    assert len(timeouts) == 3 and max(timeouts) <= 5.0

def test_a_record_is_on_the_topic(producer_core_producer, producer_core_records):
    for number in range(20):
        producer_core_producer.send_message("orders", {"n": number}, key=str(number % 3))
    producer_core_producer.flush()
    records = producer_core_records("orders")
    assert sorted(record.value() for record in records) == sorted(b'{"n":%d}' % n for n in range(20))
    assert [(r.partition(), r.offset()) for r in records] == sorted((r.partition(), r.offset()) for r in records)

def test_each_test_has_its_own_broker(producer_core_records):
    assert producer_core_records("orders") == []

def test_a_fault_of_the_broker_reaches_the_producer(producer_core_broker, producer_core_producer):
    producer_core_broker.reject("orders", "POLICY_VIOLATION")
    producer_core_producer.send_message("orders", {"n": 1})
    producer_core_producer.flush()
    assert [message.topic for message in producer_core_producer.get_dlq_messages()] == ["orders"]

def test_an_outage_until_the_end(producer_core_broker, producer_core_producer, producer_core_records, monkeypatch):
    monkeypatch.setattr("producer_core.producer.pytest_plugin._READ_TIMEOUT_S", 1.0)
    producer_core_producer.send_message("orders", {"n": 1})
    producer_core_broker.down()
    with pytest.raises(TimeoutError, match="orders were not read within 1 s"):
        producer_core_records("orders")
"""


PAGE = (ROOT / "docs" / "how-to" / "test-an-application.md").read_text()


@pytest.mark.parametrize(
    ("tests", "passed"),
    [(APPLICATION_TESTS, 4), (re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)[1], 2)],
    ids=["application", "page"],
)
def test_the_fixtures_work_in_an_application_s_tests(tmp_path, tests, passed):
    (tmp_path / "test_application.py").write_text(tests)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]

    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)

    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{passed} passed" in done.stdout


def test_the_plugin_loads_no_kafka_client_before_a_fixture_is_used():
    code = "import producer_core.producer.pytest_plugin, sys; print('confluent_kafka' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert done.stdout.strip() == "False", done.stderr
