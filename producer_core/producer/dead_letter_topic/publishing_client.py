"""The client with which a producer publishes its dead letters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

from producer_core.config import ClientConfig
from producer_core.dlq.topics.confirmed_lookup import ConfirmedLookup
from producer_core.dlq.topics.dead_letter_topic import DeadLetterTopic
from producer_core.dlq.topics.publisher import OpenProducer, check_topics
from producer_core.dlq.topics.topic_sender import Probe, PublishingProducer, TopicSender, prober
from producer_core.kafka.record_lookup import ProbeResult
from producer_core.producer.dead_letter_topic.bounded_lookup import BoundedLookup
from producer_core.producer.dead_letter_topic.client_settings import publishing_settings
from producer_core.producer.dead_letter_topic.lookup_ahead import LookupAhead, Upcoming
from producer_core.producer.dead_letter_topic.targets import TargetNames


@dataclass(frozen=True)
class PublishingClient:
    """Opens the client on first use. With `has_broker` false, as for a simulated cluster, topics are not read."""

    topic: DeadLetterTopic
    config: ClientConfig
    open: OpenProducer
    has_broker: bool = True

    def open_producer(self) -> PublishingProducer:
        return self.open(self.config.bootstrap_servers, publishing_settings(self.config))

    def sender(
        self,
        targets: TargetNames,
        while_waiting: Callable[[], None] = lambda: None,
        upcoming: Upcoming = MappingProxyType({}),
    ) -> TopicSender:
        """Return a sender whose first lookup of a topic also looks for the upcoming dead letters."""
        confirmed = ConfirmedLookup(self._lookup, while_waiting)
        probe = LookupAhead(confirmed, upcoming) if upcoming else confirmed
        return TopicSender(
            self.topic.dialect, probe=probe, while_waiting=while_waiting, partitions=targets.partitions
        )

    @cached_property
    def _lookup(self) -> Probe:
        return BoundedLookup(prober(self.config.settings) if self.has_broker else _no_records)

    def targets(self, stopping: Callable[[], bool]) -> TargetNames:
        def check(name: str) -> int | None:
            return check_topics({name}, self.config, stopping)[name] if self.has_broker else None

        return TargetNames(self.topic, check)


def _no_records(topic: str, message_ids: Sequence[str], since_ms: int) -> Mapping[str, ProbeResult]:
    return {}
