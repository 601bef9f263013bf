"""The exceptions of the producer, as one tree. The docstring of a class is its default message.

ProducerError
├── ConfigError                 the settings contradict each other; raised before anything is sent
├── DeliveryFailed              a message became a dead letter; `callback` receives this error
├── NotAccepted                 `send_message` refused the message: the caller still owns it
│   ├── InvalidMessage          the message can never be sent in its present form
│   ├── SchemaUnavailable       the schema registry did not provide the schema of the message
│   ├── QueueFull               the queue had no room within `max_block_ms`
│   │   └── RateLimited         the rate limit would have delayed the message for longer than `max_block_ms`
│   ├── CircuitOpen             the circuit breaker refuses messages during an outage
│   ├── ProducerClosed          the producer was closed
│   ├── ForkedProducer          the producer belongs to the parent process
│   └── Fenced                  another process has taken over the transactional id
├── StoreError                  the DuckDB file
│   ├── StoreUnavailable        the path is missing, is not a file or is not writable
│   │   └── StoreFull           the disk is full
│   ├── StoreLocked             another process held the lock for too long
│   ├── StoreTooNew             a newer producer_core wrote the file
│   └── StoreCorrupt            the file is not a DuckDB file, or is damaged
├── DedupError                  the deduplication backend did not respond
├── JournalError                the journal's directory
│   ├── JournalLocked           another process owns the journal
│   ├── JournalFull             the disk, or the journal's size limit, has no room left
│   └── JournalDamaged          something other than the producer changed the journal
├── ReplayError                 a replay cannot be planned or run
│   ├── NoReplayRunner          no running process has a client configuration
│   ├── OtherCluster            the dead letters come from another cluster
│   ├── ApprovalRequired        a second person must approve the replay first
│   └── NotPermitted            the role of the user does not permit the act
├── TransferError               a file of dead letters cannot be exported or imported
├── PipelineError               a Spark job failed
│   └── CheckpointDamaged       the job's checkpoint is damaged
└── BrokerError                 a broker cannot be started, stopped or reached
    ├── BrokerUnreachable       no broker responds at the address
    │   └── TokenUnavailable    no token for the brokers: the callback or the token endpoint failed
    └── MissingTool             a required program is not installed
"""

from __future__ import annotations

from typing import Any


class ProducerError(Exception):
    """The producer could not complete the operation."""

    def __init__(self, message: str = "", *, fix: str = "") -> None:
        text = message or (type(self).__doc__ or "").strip()
        super().__init__(f"{text} {fix}".strip())
        self.what = text.strip()
        """The message without the fix."""
        self.fix = fix


class ConfigError(ProducerError, ValueError):
    """The settings contradict each other."""


class DeliveryFailed(ProducerError):
    """The message became a dead letter."""

    def __init__(self, message: str = "", *, code: str = "", verdict: str = "") -> None:
        super().__init__(message)
        self.code = code
        """The error code, as `producer-core explain` accepts it."""
        self.verdict = verdict
        """Whether a resend can write a second copy, for example not_sent, rejected or inconclusive."""


class NotAccepted(ProducerError):
    """The producer did not accept the message. The caller still owns it."""


class InvalidMessage(NotAccepted, ValueError):
    """The message cannot be sent in this form."""


class SchemaUnavailable(NotAccepted):
    """The schema registry did not provide the schema of the message."""


class QueueFull(NotAccepted):
    """The queue had no room for the message in time. The broker is unreachable, or slower than the application."""


class RateLimited(QueueFull):
    """The rate limit would delay the message for longer than it may wait."""

    def __init__(self, message: str = "", *, fix: str = "", retry_after_s: float = 0.0) -> None:
        super().__init__(message, fix=fix)
        self.retry_after_s = retry_after_s
        """Seconds until the limit has room for the message, if no other message is sent before."""


class CircuitOpen(NotAccepted):
    """The circuit breaker refuses messages during an outage. Send again later."""

    def __init__(self, *, topic: str | None = None, reason: str = "", retry_after_s: float = 0.0) -> None:
        name = "the cluster" if topic is None else f"topic {topic}"
        super().__init__(
            f"The circuit of {name} is open: {reason}.", fix=f"Send again in {max(retry_after_s, 0.1):.1f} s."
        )
        self.topic = topic
        """The topic whose circuit is open; None for the circuit of the cluster."""
        self.reason = reason
        self.retry_after_s = retry_after_s
        """Seconds after which to send again: the circuit may then let a message through as a probe. Above 0."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _circuit_open, (self.topic, self.reason, self.retry_after_s)


def _circuit_open(topic: str | None, reason: str, retry_after_s: float) -> CircuitOpen:
    return CircuitOpen(topic=topic, reason=reason, retry_after_s=retry_after_s)


class ProducerClosed(NotAccepted):
    """The producer is closed. Create a new one, or send before close()."""


class ForkedProducer(NotAccepted):
    """This producer belongs to the parent process. Create one in the child, after the fork."""


class Fenced(NotAccepted):
    """Another process has taken over this producer's transactional id. This producer can no longer send messages."""


class StoreError(ProducerError):
    """The store cannot be used."""


class StoreUnavailable(StoreError):
    """The store's file cannot be opened."""


class StoreFull(StoreUnavailable):
    """The store's disk is full."""


class StoreLocked(StoreError):
    """Another process holds the store and did not release it in time."""


class StoreTooNew(StoreError):
    """A newer producer_core wrote this store. Upgrade producer_core; the store was not changed."""


class StoreCorrupt(StoreError):
    """The store's file is not a DuckDB file, or is damaged."""


class DedupError(ProducerError):
    """The deduplication backend did not respond."""


class JournalError(ProducerError):
    """The journal cannot be used."""


class JournalLocked(JournalError):
    """Another process owns this journal."""


class JournalFull(JournalError):
    """The journal has no room left."""

    withdrawn = False
    """The message was written, could not be made durable and was removed again; its sequence is used up."""


class JournalDamaged(JournalError):
    """Something other than the producer changed the journal."""


class ReplayError(ProducerError):
    """The replay cannot be planned or run."""


class NoReplayRunner(ReplayError):
    """No process with a client configuration is running, so the records cannot be sent."""


class OtherCluster(ReplayError):
    """These dead letters come from another cluster."""


class ApprovalRequired(ReplayError):
    """A second person must approve the replay before it starts."""

    def __init__(
        self, message: str = "", *, fix: str = "", request_id: str = "", operation_id: str = ""
    ) -> None:
        super().__init__(message, fix=fix)
        self.request_id = request_id
        """The request that waits for the approval."""
        self.operation_id = operation_id
        """The replay."""


class NotPermitted(ReplayError):
    """The approval policy does not permit this act to the user."""


class TransferError(ProducerError):
    """The file of dead letters cannot be exported or imported."""


class PipelineError(ProducerError):
    """The Spark job failed."""


class CheckpointDamaged(PipelineError):
    """The Spark job's checkpoint is damaged."""


class BrokerError(ProducerError):
    """The broker could not be started, stopped or reached."""


class BrokerUnreachable(BrokerError):
    """No broker responds at this address."""


class TokenUnavailable(BrokerUnreachable):
    """No SASL/OAUTHBEARER token was obtained, so the brokers cannot be reached."""


class MissingTool(BrokerError):
    """A required program is not installed."""
