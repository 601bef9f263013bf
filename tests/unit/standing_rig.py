"""A real client on a broker with a watch as its hook, and all that both had to say."""

from __future__ import annotations

import uuid

from producer_core import ReliableKafkaProducer, RetryConfig
from producer_core.delivery.loss_detection import AckedLogMonitor, KafkaBrokerQueries
from producer_core.events import Hook
from producer_core.messages import MessageIds

_RETRY = RetryConfig(max_retries=3, initial_delay_ms=20, max_delay_ms=100, jitter=False)


class Rig(Hook):
    """Sends to partition 0 of one topic and waits until all is settled; passes on what it hears to the watch."""

    def __init__(self, servers, topic, config=None, *, made=AckedLogMonitor, producer=None, **options):
        self.topic, self.standing = topic, None
        self.notices, self.failed, self.reports, self.eos = [], [], [], {}
        self.producer = ReliableKafkaProducer(
            servers,
            {"statistics.interval.ms": 100, **(config or {})},
            _RETRY,
            store=None,
            hooks=[self],
            health_check_interval=3600,
            **(producer or {}),
        )
        asker, session = KafkaBrokerQueries({"bootstrap.servers": servers}), uuid.UUID(self.producer.identity)
        self.standing = made(
            asker, self.notices.append, ids=MessageIds(session), **{"confirm": 0.1, **options}
        )
        self.standing.start()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.producer.close(10)
        self.standing.stop()

    def send(self, count, partition=0, **options):
        for number in range(count):
            self.producer.send_message(
                self.topic, {"n": number}, partition=partition, on_delivery=self.reports.append, **options
            )
        self.producer.flush(60)

    def kinds(self):
        return [notice.kind for notice in self.notices]

    def cases(self):
        return [finding.case for finding in self.standing.findings]

    # the hook

    def acknowledged(self, batch):
        self.standing.acknowledged(batch)

    def attempt_failed(self, event):
        self.failed.append(event.code)
        self.standing.attempt_failed(event)

    def client_statistics(self, statistics):
        self.eos = statistics.get("eos", {})
        if self.standing is not None:
            self.standing.client_statistics(statistics)

    def notice(self, notice):
        if self.standing is not None:
            self.standing.notice(notice)
