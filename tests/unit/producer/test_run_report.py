"""`producer.report`: one HTML file about what a producer does in a block."""

from __future__ import annotations

import re
import stat
import threading
from html.parser import HTMLParser

import pytest

from producer_core import ConfigError, ProducerError, ReliableKafkaProducer, RetryConfig
from producer_core.kafka.classify import failure_of
from producer_core.producer import run_report
from producer_core.producer.run_facts import RunFacts, TopicRun
from producer_core.testing import InMemoryTransport

SECRET = "hunter2-hunter2"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.html"


def opened(script=lambda delivery: None, **options):
    settings = {
        "sasl.mechanism": "PLAIN",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.username": "u",
        "sasl.password": SECRET,
    }
    return ReliableKafkaProducer(
        "nowhere:9092", settings, RetryConfig(max_retries=0), store=None, run_replays=False,
        transport=InMemoryTransport.factory([], script=script), **options,
    )  # fmt: skip


def shown(path):
    """Return the text of the page. Fail for a page whose elements are not closed."""
    texts, stack = [], []

    class Reader(HTMLParser):
        def handle_starttag(self, tag, attrs):
            if tag not in ("meta", "path", "polyline"):
                stack.append(tag)
            assert tag not in ("script", "link", "img", "iframe")

        def handle_endtag(self, tag):
            if tag not in ("path", "polyline"):
                assert stack.pop() == tag

        def handle_data(self, data):
            if "style" not in stack:
                texts.append(data)

    Reader().feed(path.read_text())
    assert stack == []
    return re.sub(r"\s+", " ", " ".join(texts))


def test_the_report_counts_what_the_block_sent_and_nothing_before_it(path):
    with opened(application="shop") as producer:
        for number in range(7):
            producer.send_message("orders", {"n": number})
        producer.flush()
        with producer.report(path):
            for number in range(120):
                producer.send_message("orders" if number % 2 else "refunds", {"n": number})
        producer.send_message("orders", {"n": "later"})
    text = shown(path)
    assert "120 messages acknowledged in" in text
    assert "orders 60" in text and "refunds 60" in text
    assert "application shop" in text and "p99.9" in text
    assert "Failed attempts" not in text


def test_failures_have_their_code_meaning_and_advice(path):
    def fail(delivery):
        return "MSG_SIZE_TOO_LARGE" if delivery.seq % 4 == 0 else None

    with opened(fail) as producer, producer.report(path):
        for number in range(40):
            producer.send_message("orders", {"n": number})
    text = shown(path)
    assert "30 messages acknowledged, 10 dead letters in" in text
    assert "25.00%" in text
    assert "MSG_SIZE_TOO_LARGE orders 10" in text and failure_of("MSG_SIZE_TOO_LARGE").meaning in text


def test_the_report_has_no_secret_and_no_content_of_a_message(path):
    with opened() as producer, producer.report(path):
        producer.send_message("orders", {"card": "4111 1111 1111 1111"}, key="alice@example.com")
    raw = path.read_text()
    assert SECRET not in raw and "4111" not in raw and "alice" not in raw
    assert "sasl.password" in raw
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_topic_is_never_markup(path):
    hostile = "<img src=x onerror=alert(1)>"
    facts = RunFacts(
        0.0, 1.0, {hostile: TopicRun(1, 0, 0, 0, 0, 1, 0.1, {3: 1})}, {(hostile, "_TRANSPORT"): 2}, 0, (),
        hostile, hostile, {"client.id": hostile}, hostile,
    )  # fmt: skip
    path.write_text(run_report.page(facts))
    assert "onerror" in shown(path)


def test_an_exception_of_the_block_goes_on_and_is_named(path):
    with opened() as producer, pytest.raises(ZeroDivisionError), producer.report(path):
        producer.send_message("orders", {"n": 1})
        1 / 0
    assert "The block ended with ZeroDivisionError." in shown(path)
    assert "1 message acknowledged" in shown(path)


def test_a_block_without_messages_says_so(path):
    with opened() as producer, producer.report(path):
        pass
    assert "No message was sent." in shown(path)


def test_what_is_not_settled_in_time_is_pending(path):
    with opened(lambda delivery: "hold") as producer:
        with producer.report(path, flush_timeout=0):
            producer.send_message("orders", {"n": 1})
        assert "1 still pending" in shown(path)
        producer._engine.transport.release()


def test_a_producer_that_is_closed_in_the_block_is_reported(path):
    producer = opened()
    with producer.report(path):
        producer.send_message("orders", {"n": 1})
        producer.close()
    assert "1 message acknowledged" in shown(path)


@pytest.mark.parametrize("name", ["missing/run.html", "."])
def test_a_place_where_no_file_can_be_written_is_an_error_at_the_start(tmp_path, name):
    with (
        opened() as producer,
        pytest.raises(ConfigError, match="cannot be written"),
        producer.report(tmp_path / name),
    ):
        pass


def test_a_disk_that_is_full_at_the_end_is_an_error_and_leaves_the_earlier_report(path, monkeypatch):
    path.write_text("earlier")

    def full(draft, data):
        draft.write_text("half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(run_report.private_files, "write", full)
    with opened() as producer, pytest.raises(ProducerError, match="No space left"), producer.report(path):
        pass
    assert path.read_text() == "earlier"
    assert list(path.parent.iterdir()) == [path]


def test_a_long_run_keeps_a_bounded_number_of_samples(path, monkeypatch):
    monkeypatch.setattr(run_report, "_MAX_SAMPLES", 10)
    with opened() as producer, producer.report(path) as report:
        for _ in range(100):
            report._take_sample()
        assert len(report._samples) <= 10
        assert report._interval > 1
    assert not any(thread.name == "producer-core-report" for thread in threading.enumerate())
