"""A real producer on a broker with a loss monitor as its hook, and the events of both."""

from __future__ import annotations

import uuid

from producer_core import ReliableKafkaProducer, RetryConfig
from producer_core.delivery.loss_detection import AckedLogMonitor, KafkaBrokerQueries
from producer_core.events import Hook
from producer_core.messages import MessageIds
from tests.factories import loss_monitor

_RETRY = RetryConfig(max_retries=3, initial_delay_ms=20, max_delay_ms=100, jitter=False)


class MonitoredProducer(Hook):
    """Send to one topic, wait until all messages are settled, and pass the hook events on to the monitor."""

    def __init__(
        self, servers, topic, config=None, *, monitor_class=AckedLogMonitor, producer=None, **options
    ):
        self.topic, self.loss_monitor = topic, None
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
        queries, session = (
            KafkaBrokerQueries({"bootstrap.servers": servers}),
            uuid.UUID(self.producer.identity),
        )
        self.loss_monitor = loss_monitor(
            queries,
            self.notices.append,
            made=monitor_class,
            ids=MessageIds(session),
            **{"confirm_delay": 0.1, **options},
        )
        self.loss_monitor.start()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.producer.close(10)
        self.loss_monitor.stop()

    def send(self, count, partition=0, **options):
        for number in range(count):
            self.producer.send_message(
                self.topic, {"n": number}, partition=partition, on_delivery=self.reports.append, **options
            )
        self.producer.flush(60)

    def kinds(self):
        return [notice.kind for notice in self.notices]

    def cases(self):
        return [finding.case for finding in self.loss_monitor.findings]

    # hook methods

    def acknowledged(self, batch):
        self.loss_monitor.acknowledged(batch)

    def attempt_failed(self, event):
        self.failed.append(event.code)
        self.loss_monitor.attempt_failed(event)

    def client_statistics(self, statistics):
        self.eos = statistics.get("eos", {})
        if self.loss_monitor is not None:
            self.loss_monitor.client_statistics(statistics)

    def notice(self, notice):
        if self.loss_monitor is not None:
            self.loss_monitor.notice(notice)
