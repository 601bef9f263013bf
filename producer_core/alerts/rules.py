"""The rules: each kind of alert with its severity, its words and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from producer_core.events import Severity


@dataclass(frozen=True, slots=True)
class Rule:
    """How an alert of this kind is worded; `text` is a format string over value, threshold and details.

    `lasting`: it tells of a fact, not of a state, so it fires until somebody acknowledges it.
    """

    severity: Severity
    text: str
    advice: str
    lasting: bool = False


RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "high_error_rate": Rule(
            "critical",
            "{value:.1%} of the messages fail; the limit is {threshold:.1%}",
            "Open the errors by topic: one group of dead letters usually names the cause. Replay when it is gone.",
        ),
        "high_latency": Rule(
            "warning",
            "Messages take {value:.0f} ms on average; the limit is {threshold:.0f} ms",
            "Look at the brokers' load and at linger_ms; a full queue adds its waiting time.",
        ),
        "high_dlq_size": Rule(
            "warning",
            "{value:,.0f} dead letters wait; the limit is {threshold:,.0f}",
            "Look at the groups of dead letters, mend the cause, then replay or archive them.",
        ),
        "high_memory_usage": Rule(
            "warning",
            "The process uses {value:.0%} of its memory; the limit is {threshold:.0%}",
            "Lower buffer_memory, or find what keeps messages waiting: often a broker that is away.",
        ),
        "connection_lost": Rule(
            "critical",
            "No connection to the brokers: {reason}",
            "Check the address, the network and the credentials; messages wait until their delivery timeout.",
        ),
        "store_unavailable": Rule(
            "critical",
            "The store cannot be written: {reason}",
            "Producing goes on and dead letters are spilled beside the store; free the disk or the lock.",
        ),
        "dedup_degraded": Rule(
            "warning",
            "De-duplication does not answer: {reason}",
            "Messages are sent without the check until it is back; start Redis or check its address.",
        ),
        "fatal_error": Rule(
            "critical",
            "{text}",
            "The client is made anew; if this returns, the message says what the broker objects to.",
        ),
        "producer_gone": Rule(
            "critical",
            "{client} has given no sign of life since {seen} UTC and was not closed; {pending} of its messages "
            "were unsettled",
            "Look at the process on its host. What it had not written down is lost unless it has a journal.",
        ),
        "loss_suspected": Rule(
            "critical",
            "{text}",
            "Wait for the evidence: it is read at once, and this alert ends with what it says.",
        ),
        "acknowledged_lost": Rule(
            "critical",
            "{text}",
            "Look for an unclean leader election, a lost disk or a restored backup, and send the missing records "
            "again from their source. Acknowledge this alert when that is decided, and call producer.go_on(topic).",
            lasting=True,
        ),
        "producer_desynchronised": Rule(
            "warning",
            "{text}",
            "Nothing is lost. If it returns, look for restarts in the broker's log and at its "
            "producer.id.expiration.ms.",
        ),
        "topic_recreated": Rule(
            "warning",
            "{text}",
            "If nobody meant to delete the topic, ask who did; what it held has to be sent again.",
        ),
        "retention_removed": Rule(
            "info", "{text}", "Nothing to do; raise the retention if readers had not come that far."
        ),
        "standing_unknown": Rule(
            "warning", "{text}", "Grant READ and DESCRIBE on the topic, or see to the connection."
        ),
        "order_break": Rule(
            "warning",
            "{text}",
            'Readers that need the order of a key must check it there. ordering="strict" keeps one message of a key '
            "in flight at a time; exactly-once delivery keeps the order of every partition.",
        ),
        "epoch_rose": Rule(
            "info",
            "{text}",
            "Nothing to do if messages were refused meanwhile; else look at the brokers' logs of that time.",
        ),
        "fenced": Rule(
            "critical",
            "{text}",
            "One process owns a transactional id: stop one of the two, or give each its own.",
        ),
        "shard_ended": Rule("critical", "{text}", "Restart the process; what is journaled is sent then."),
        "transactions_failing": Rule(
            "critical", "{text}", "Look at the brokers and at the permissions for the transactional id."
        ),
        "read_back_waits": Rule(
            "warning", "{text}", "Find the transaction that is open on the partition, and end it."
        ),
        "read_back_refused": Rule("critical", "{text}", "Follow what it says; until then nothing is sent."),
        "journal_full": Rule(
            "critical",
            "{text}",
            "Free the disk, raise the journal's limit, or see why the broker takes nothing.",
        ),
        "journal_torn": Rule(
            "warning", "{text}", "Nothing to do after a crash: the torn end was never accepted."
        ),
        "journal_damaged": Rule(
            "critical",
            "{text}",
            "Check the disk. The damaged bytes were kept aside; the rest goes on.",
            lasting=True,
        ),
        "weak_replication": Rule(
            "warning", "{text}", "Give the topic three replicas and min.insync.replicas=2."
        ),
    }
)
