"""A read-back waits once for everything that is missing."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException

from producer_core.delivery.exactly_once import read_back
from producer_core.delivery.exactly_once.read_back import ReadBack


class MissingPartitions:
    """A consumer of a topic that was recreated with two partitions. Each query takes a tenth of a second."""

    def __init__(self, wait):
        self._wait = wait

    def get_watermark_offsets(self, partition, *, timeout, cached):
        self._wait(0.1)
        if partition.partition < 2:
            return 0, 10
        raise KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION))


@pytest.mark.parametrize("missing", [1, 4, 20])
def test_many_missing_partitions_delay_a_read_back_no_longer_than_one(monkeypatch, missing):
    now = [0.0]

    def wait(seconds):
        now[0] += seconds

    monkeypatch.setattr(read_back, "time", SimpleNamespace(monotonic=lambda: now[0]))
    reader = ReadBack({}, wait, lambda *_: None, lambda _: None)

    found = reader._all_watermarks(MissingPartitions(wait), {("orders", n): 5 for n in range(2 + missing)})

    assert [partition for partition, ends in found.items() if ends is None] == [
        ("orders", n) for n in range(2, 2 + missing)
    ]
    one_round = 0.1 * missing + read_back._PAUSE_S
    assert now[0] <= read_back._DELETED_AFTER_S + 3 * one_round


def test_the_read_back_waits_while_there_is_no_token():
    """It decides whether messages are sent again, so it must not end without an answer."""
    broken, errors, waits = [True, True], [], []

    def get_token(_config):
        if broken:
            broken.pop()
            raise ValueError("closed")
        return "token", 4e9

    settings = {
        "bootstrap.servers": "127.0.0.1:1",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": get_token,
    }
    reader = ReadBack(settings, waits.append, lambda *_: None, errors.append)
    with reader._consumer({}) as consumer:
        assert consumer.list_topics is not None
    assert len(waits) == 2
    assert "oauth_cb raised ValueError: closed" in errors[0].str()
