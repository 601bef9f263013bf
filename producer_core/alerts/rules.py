"""The rules: each kind of alert with its severity, its words and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from producer_core.alerts.conditions import (
    DAY,
    HOUR,
    MINUTE,
    REPORTED,
    SLOW,
    Absence,
    BurnRate,
    Condition,
    InvalidRuleFile,
    RouteFailing,
    Threshold,
)
from producer_core.events import Severity

GONE_AFTER = 40.0
"""Seconds without a sign of life after which a producer that was not closed counts as gone."""

FORGOTTEN_AFTER = DAY
"""Seconds after which a gone producer is history, no longer an alert."""


@dataclass(frozen=True, slots=True)
class AlertRule:
    """When an alert of this kind fires and how it is worded; `text` is a format string over value, threshold
    and details.

    `lasting`: it tells of a fact, not of a state, so it fires until somebody acknowledges it. `for_`: seconds the
    condition must hold before it fires. `keep_firing_for`: seconds it must be gone before the alert resolves.
    Of a rule that is told by producers both hold back only what people are told. `inhibits`: alerts of these
    rules about the same thing, or about topics of the same producer, are told to nobody meanwhile.
    """

    severity: Severity
    text: str
    advice: str
    lasting: bool = False
    condition: Condition = REPORTED
    for_: float = 0.0
    keep_firing_for: float = 0.0
    inhibits: tuple[str, ...] = ()
    runbook: str = ""
    enabled: bool = True
    subjects: tuple[str, ...] = ()
    """Patterns (`payments`, `orders.*`) of what it is about; none: everything."""
    shared: bool = False
    """Every producer on a store tells the same: people are told once."""


_OF_TOPICS = ("error_budget_fast", "error_budget_slow", "slow_delivery", "dead_letters_growing")
_OF_A_PRODUCER = (
    "high_error_rate",
    "high_latency",
    "delivery_stalled",
    "many_unsettled",
    "memory_near_limit",
)

RULES: Mapping[str, AlertRule] = MappingProxyType(
    {
        "error_budget_fast": AlertRule(
            "critical",
            "{subject}: {value:.2%} of the messages became dead letters within {long}, {factor} times what the "
            "objective of {objective} allows",
            "Open the errors of this topic: one group of dead letters usually names the cause. Replay when it is gone.",
            condition=BurnRate(),
            keep_firing_for=5 * MINUTE,
            inhibits=("error_budget_slow", "dead_letters_growing"),
        ),
        "error_budget_slow": AlertRule(
            "warning",
            "{subject}: {value:.2%} of the messages became dead letters within {long}, {factor} times what the "
            "objective of {objective} allows",
            "Nobody has to get up. Look at the groups of dead letters this week: a few causes make the most of it.",
            condition=BurnRate(pairs=SLOW),
            keep_firing_for=HOUR,
        ),
        "slow_delivery": AlertRule(
            "warning",
            "{subject}: {says}; the limit is {threshold:g} s",
            "Look at the latency page: a full queue, a throttled client or one slow broker is named there.",
            condition=Threshold("latency_p99", above=10.0, min_events=100),
            for_=5 * MINUTE,
            keep_firing_for=10 * MINUTE,
        ),
        "dead_letters_old": AlertRule(
            "warning",
            "{subject}: {says}",
            "Replay or archive them: a queue that nobody empties hides the next trouble.",
            condition=Threshold("dlq_age", above=DAY, by="topic"),
            for_=MINUTE,
        ),
        "dead_letters_growing": AlertRule(
            "warning",
            "{subject}: {value:,.0f} dead letters came within {window} and still wait",
            "Look at the newest group of dead letters; its advice says what mends the cause.",
            condition=Threshold("dlq_growth", above=1000.0, window=15 * MINUTE),
            for_=MINUTE,
            keep_firing_for=10 * MINUTE,
        ),
        "delivery_stalled": AlertRule(
            "critical",
            "{client}: {value:,.0f} messages wait and none was settled for {after}",
            "Look at the connection and at the brokers; messages wait until their delivery timeout, with a journal "
            "for a day.",
            condition=Absence("delivery", after=5 * MINUTE),
            for_=MINUTE,
            keep_firing_for=MINUTE,
        ),
        "many_unsettled": AlertRule(
            "warning",
            "{client}: {says}; the limit is {threshold:,.0f}",
            "The brokers take less than is sent. Look at the latency page; slow down, or give the journal's disk room.",
            condition=Threshold("pending", above=100_000.0, by="producer"),
            for_=5 * MINUTE,
            keep_firing_for=5 * MINUTE,
        ),
        "memory_near_limit": AlertRule(
            "critical",
            "{client}: {says}; at all of it the process is killed",
            "Lower buffer_memory, give the container more, or find what keeps messages waiting.",
            condition=Threshold("memory", above=0.95, by="producer"),
            for_=2 * MINUTE,
            keep_firing_for=5 * MINUTE,
            inhibits=("high_memory_usage",),
        ),
        "rules_file_refused": AlertRule(
            "warning",
            "The rules in {subject} do not count, the built-in ones do: {reason}",
            "Mend the file; «producer-core alerts check» says whether it is right. It is read again by itself.",
            condition=InvalidRuleFile(),
        ),
        "notifications_failing": AlertRule(
            "warning",
            "Nobody is told over {subject}: {reason}",
            "Run «producer-core alerts test»; it says what the receiver answers. What was not told waits and is "
            "tried again.",
            condition=RouteFailing(),
        ),
        "high_error_rate": AlertRule(
            "critical",
            "{value:.1%} of the messages failed between two checks; the limit is {threshold:.1%}",
            "Open the errors by topic: one group of dead letters usually names the cause. Replay when it is gone.",
            keep_firing_for=5 * MINUTE,
        ),
        "high_latency": AlertRule(
            "warning",
            "Messages take {value:.0f} ms on average; the limit is {threshold:.0f} ms",
            "Look at the brokers' load and at linger_ms; a full queue adds its waiting time.",
            keep_firing_for=5 * MINUTE,
        ),
        "high_dlq_size": AlertRule(
            "warning",
            "{value:,.0f} dead letters wait; this alert fires above {threshold:,.0f}",
            "Look at the groups of dead letters, mend the cause, then replay or archive them.",
            keep_firing_for=5 * MINUTE,
            shared=True,
        ),
        "high_memory_usage": AlertRule(
            "warning",
            "The process uses {value:.0%} of its memory; the limit is {threshold:.0%}",
            "Lower buffer_memory, or find what keeps messages waiting: often a broker that is away.",
            keep_firing_for=5 * MINUTE,
        ),
        "connection_lost": AlertRule(
            "critical",
            "No connection to the brokers: {reason}",
            "Check the address, the network and the credentials; messages wait until their delivery timeout.",
            keep_firing_for=MINUTE,
            inhibits=(*_OF_TOPICS, *_OF_A_PRODUCER),
        ),
        "store_unavailable": AlertRule(
            "critical",
            "The store cannot be written: {reason}",
            "Producing goes on and dead letters are spilled beside the store; free the disk or the lock.",
        ),
        "dedup_degraded": AlertRule(
            "warning",
            "De-duplication does not answer: {reason}",
            "Messages are sent without the check until it is back; start Redis or check its address.",
            keep_firing_for=MINUTE,
        ),
        "telemetry_failing": AlertRule(
            "warning",
            "{failed} of the last {windows} windows of telemetry are not on {topic}: {reason}",
            "Look at the telemetry topic's brokers and at WRITE on it. Producing goes on, this store is complete; "
            "what was not sent waits, and is sent when the topic can be had.",
            keep_firing_for=MINUTE,
        ),
        "telemetry_lost": AlertRule(
            "warning",
            "{text}",
            "The fleet's curves have a gap there, and an audit says which windows it has no ledger of. A journal gives "
            "telemetry a disk to wait on.",
        ),
        "ledger_lost": AlertRule(
            "warning",
            "{text}",
            "An audit will call these messages unledgered. See why the store cannot be written.",
        ),
        "fatal_error": AlertRule(
            "critical",
            "{text}",
            "The client is made anew; if this returns, the message says what the broker objects to.",
        ),
        "producer_gone": AlertRule(
            "critical",
            "{client} has given no sign of life since {seen} UTC and was not closed; {pending} of its messages "
            "were unsettled",
            "Look at the process on its host. What it had not written down is lost unless it has a journal.",
            condition=Absence("producer", after=GONE_AFTER, lookback=FORGOTTEN_AFTER),
            inhibits=("connection_lost", "dedup_degraded", *_OF_A_PRODUCER),
        ),
        "loss_suspected": AlertRule(
            "critical",
            "{text}",
            "Wait for the evidence: it is read at once, and this alert ends with what it says.",
        ),
        "acknowledged_lost": AlertRule(
            "critical",
            "{text}",
            "Look for an unclean leader election, a lost disk or a restored backup, and send the missing records "
            "again from their source. Acknowledge this alert when that is decided, and call producer.go_on(topic).",
            lasting=True,
        ),
        "producer_desynchronised": AlertRule(
            "warning",
            "{text}",
            "Nothing is lost. If it returns, look for restarts in the broker's log and at its "
            "producer.id.expiration.ms.",
        ),
        "topic_recreated": AlertRule(
            "warning",
            "{text}",
            "If nobody meant to delete the topic, ask who did; what it held has to be sent again.",
        ),
        "retention_removed": AlertRule(
            "info", "{text}", "Nothing to do; raise the retention if readers had not come that far."
        ),
        "standing_unknown": AlertRule(
            "warning", "{text}", "Grant READ and DESCRIBE on the topic, or see to the connection."
        ),
        "order_break": AlertRule(
            "warning",
            "{text}",
            'Readers that need the order of a key must check it there. ordering="strict" keeps one message of a key '
            "in flight at a time; exactly-once delivery keeps the order of every partition.",
        ),
        "epoch_rose": AlertRule(
            "info",
            "{text}",
            "Nothing to do if messages were refused meanwhile; else look at the brokers' logs of that time.",
        ),
        "fenced": AlertRule(
            "critical",
            "{text}",
            "One process owns a transactional id: stop one of the two, or give each its own.",
        ),
        "shard_ended": AlertRule(
            "critical", "{text}", "Restart the process; what is journaled is sent then."
        ),
        "transactions_failing": AlertRule(
            "critical", "{text}", "Look at the brokers and at the permissions for the transactional id."
        ),
        "read_back_waits": AlertRule(
            "warning", "{text}", "Find the transaction that is open on the partition, and end it."
        ),
        "read_back_refused": AlertRule(
            "critical", "{text}", "Follow what it says; until then nothing is sent."
        ),
        "journal_full": AlertRule(
            "critical",
            "{text}",
            "Free the disk, raise the journal's limit, or see why the broker takes nothing.",
        ),
        "journal_torn": AlertRule(
            "warning", "{text}", "Nothing to do after a crash: the torn end was never accepted."
        ),
        "journal_damaged": AlertRule(
            "critical",
            "{text}",
            "Check the disk. The damaged bytes were kept aside; the rest goes on.",
            lasting=True,
        ),
        "dlq_over_bound": AlertRule(
            "warning",
            "{text}",
            "Nothing is dropped. `producer-core store set` moves the bound; `producer-core dlq groups` says what they are.",
        ),
        "weak_replication": AlertRule(
            "warning", "{text}", "Give the topic three replicas and min.insync.replicas=2."
        ),
    }
)
