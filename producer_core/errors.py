"""What can go wrong, as one tree; a class's docstring is its default message.

ProducerError
├── ConfigError                 settings that contradict each other, found before anything is sent
├── DeliveryFailed              a message became a dead letter; `callback` is given it
├── NotAccepted                 `send_message` refused: the message is still the caller's
│   ├── InvalidMessage          the message itself can never be sent as it is
│   ├── QueueFull               no room within the bounded wait
│   ├── ProducerClosed          the producer was closed
│   ├── ForkedProducer          the producer belongs to the parent process
│   └── Fenced                  another process has taken over the transactional id
├── StoreError                  the DuckDB file
│   ├── StoreUnavailable        not there, not a file, not writable
│   │   └── StoreFull           its disk has no room left
│   ├── StoreLocked             another process held it for too long
│   ├── StoreTooNew             written by a newer producer_core
│   └── StoreCorrupt            not a DuckDB file, or damaged
├── DedupError                  the de-duplication backend could not answer
├── JournalError                the journal's folder
│   ├── JournalLocked           another process owns it
│   ├── JournalFull             its disk, or its bound, has no room left
│   └── JournalDamaged          it was changed by something else
├── ReplayError                 a replay that cannot be planned or run
│   ├── NobodyReplays           no process with a client configuration is alive
│   └── OtherCluster            the dead letters come from another cluster
├── TransferError               a file of dead letters that cannot be written, or must not be taken in
├── PipelineError               a Spark job that cannot be done
│   └── CheckpointDamaged       its notes of how far it has read
└── BrokerError                 starting, stopping or reaching a broker
    ├── BrokerUnreachable       nobody answers at the address
    └── MissingTool             a program that must be installed is not
"""

from __future__ import annotations


class ProducerError(Exception):
    """The producer could not do what was asked."""

    def __init__(self, message: str = "", *, fix: str = "") -> None:
        text = message or (type(self).__doc__ or "").strip()
        super().__init__(f"{text} {fix}".strip())
        self.what = text.strip()
        """The message without its fix."""
        self.fix = fix


class ConfigError(ProducerError, ValueError):
    """The settings contradict each other."""


class DeliveryFailed(ProducerError):
    """The message became a dead letter."""

    def __init__(self, message: str = "", *, code: str = "", verdict: str = "") -> None:
        super().__init__(message)
        self.code = code
        """The failure's code, as `producer-core explain` takes it."""
        self.verdict = verdict
        """Whether sending it again can write a second copy: not_sent, rejected or possibly_persisted."""


class NotAccepted(ProducerError):
    """The message was not accepted; it is still yours."""


class InvalidMessage(NotAccepted, ValueError):
    """The message cannot be sent as it is."""


class QueueFull(NotAccepted):
    """No room for the message within the wait; the broker is slower than you send, or away."""


class ProducerClosed(NotAccepted):
    """The producer is closed. Make a new one, or send before close()."""


class ForkedProducer(NotAccepted):
    """This producer belongs to the parent process. Make one in the child, after the fork."""


class Fenced(NotAccepted):
    """Another process uses this producer's transactional id, so this one sends nothing more."""


class StoreError(ProducerError):
    """The store could not be used."""


class StoreUnavailable(StoreError):
    """The store's file cannot be opened."""


class StoreFull(StoreUnavailable):
    """The disk of the store is full."""


class StoreLocked(StoreError):
    """Another process holds the store; it was not released in time."""


class StoreTooNew(StoreError):
    """The store was written by a newer producer_core. Upgrade this one; nothing was changed."""


class StoreCorrupt(StoreError):
    """The store's file is not a DuckDB file, or is damaged."""


class DedupError(ProducerError):
    """The de-duplication backend did not answer."""


class JournalError(ProducerError):
    """The journal cannot be used."""


class JournalLocked(JournalError):
    """Another process owns this journal."""


class JournalFull(JournalError):
    """The journal has no room left."""

    withdrawn = False
    """The message was written down, could not be made durable and was taken back: its number is used up."""


class JournalDamaged(JournalError):
    """The journal was changed by something else."""


class ReplayError(ProducerError):
    """The replay cannot be done."""


class NobodyReplays(ReplayError):
    """No process with a client configuration is alive, so nobody can send these messages."""


class OtherCluster(ReplayError):
    """These dead letters come from another cluster."""


class TransferError(ProducerError):
    """The file of dead letters cannot be written, or must not be taken in."""


class PipelineError(ProducerError):
    """The Spark job could not be done."""


class CheckpointDamaged(PipelineError):
    """The job's notes of how far it has read are damaged."""


class BrokerError(ProducerError):
    """The broker could not be started, stopped or asked."""


class BrokerUnreachable(BrokerError):
    """No broker answers at this address."""


class MissingTool(BrokerError):
    """A program that is needed here is not installed."""
