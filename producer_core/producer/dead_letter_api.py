"""The undelivered: what a producer could not deliver, its dead letters, how they are looked at, and the ways back."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from producer_core.delivery.dead_letter import ReplayRecord, delivery_of, from_malformed_input
from producer_core.delivery.delivery import Callbacks
from producer_core.delivery.loss_detection import AckedLogMonitor
from producer_core.delivery.reports import ReplayResult
from producer_core.events import DeadLetter
from producer_core.messages import Message, encode_key
from producer_core.producer.shutdown import Shutdown
from producer_core.producer.status import ProducerStatus

if TYPE_CHECKING:
    from producer_core.replay import Inconclusive


class DeadLetterApi(ProducerStatus):
    """A face of `ReliableKafkaProducer`, which makes what stands here first."""

    standing: AckedLogMonitor
    _ending: Shutdown

    def get_dlq_messages(self, topic: str | None = None) -> list[Message]:
        """Return the dead letters, each as its message.

        Those of other clusters in the same store are left out. While the producer does not know its cluster yet (it
        asks for 2 s at most), only letters that died before their cluster was known are returned.
        """
        return self._keeping.messages(topic)

    def clear_dlq(self, topic: str | None = None) -> int:
        """Archive the dead letters that `get_dlq_messages` returns, and return their number.

        With a store this can be undone (`producer-core dlq restore`).
        """
        return self._keeping.clear(topic)

    def replay_dlq_messages(
        self,
        topic: str,
        max_messages: int | None = None,
        *,
        timeout: float = 60.0,
        inconclusive: Inconclusive = "keep",
        to_cluster: str | None = None,
    ) -> int:
        """Send dead letters again, oldest first, and return how many the broker acknowledged.

        Each leaves the DLQ only when its own delivery report came; one that fails again stays, once. Nobody is asked:
        letters of a topic that is gone are left out, and on a topic that is compacted, or of which nobody can tell, those
        whose key has a newer record; on others they are sent, and their old values come last. What may be on its topic already is looked for there
        first (with a store; without one it is not looked for). What is not found stays a dead letter, because a late
        request of it may still arrive; `inconclusive="send"` sends it anyway, and may write a second copy. To be asked use `producer-core dlq replay`, the dashboard, or `replay.plan(check_first=True)`; without a
        store nothing is looked ahead for.

        Dead letters of other clusters in the same store stay. `to_cluster` sends them too: give the id of the cluster
        that this producer writes to (`producer.cluster_id`); any other id raises OtherCluster.
        """
        self._ending.check()
        return self._keeping.replay(self, topic, max_messages, timeout, inconclusive, to_cluster)

    def resend(self, letter: DeadLetter | ReplayRecord, settled: Callable[[ReplayResult], None]) -> None:
        """Send one dead letter again under its own id; `settled` hears how it ended. Used by replays."""
        self._ending.check()
        delivery = delivery_of(letter)
        if (number := self._parts.identity.ids.number(delivery.id)) is not None:
            delivery.seq = number
        delivery.accepted_at = letter.accepted_at
        delivery.owner = Callbacks(replay=settled)
        self._lifecycle.acceptance.resend(delivery)

    def go_on(self, topic: str) -> int:
        """After a loss of acknowledged records, once you have decided: messages in doubt there are sent again.

        Until then, or a restart, they become dead letters. How many partitions were held up so.
        """
        return self.standing.go_on(topic)

    def dead_letter(
        self,
        topic: str,
        raw: bytes | None,
        *,
        code: str = "malformed",
        text: str,
        source: str | None = None,
        key: Any = None,
    ) -> str:
        """Keep an input that cannot become a message: verdict `not_sent`, not replayable until edited."""
        self._ending.check()
        message_id = self._parts.identity.next_id()
        letter = from_malformed_input(
            message_id, topic, origin=self._parts.origin, key=encode_key(key), raw=raw, code=code, text=text,
            source=source, now=self._clock(),
        )  # fmt: skip
        for hook in (self.metrics, self._keeping.hook):
            hook.died(letter)
        return message_id
