"""The built-in alert rules, each with its severity, its summary and its advice."""

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
    CauseReturned,
    Condition,
    InvalidRuleFile,
    ObjectiveBurn,
    ObjectiveMissed,
    PendingApproval,
    RouteFailing,
    Threshold,
)
from producer_core.events import Severity

GONE_AFTER = 40.0
"""Seconds without a heartbeat after which a producer that was not closed counts as gone."""

FORGOTTEN_AFTER = DAY
"""Seconds after which a gone producer no longer raises an alert."""


@dataclass(frozen=True, slots=True)
class AlertRule:
    """When an alert of this kind fires, and how it is worded.

    `text` is a format string over the subject, value, threshold and details. `lasting`: the alert reports an event,
    not a state, so it fires until it is acknowledged. `for_`: seconds the condition must hold before the alert fires.
    `keep_firing_for`: seconds the condition must be over before the alert resolves. For a rule that producers report,
    both delay only the notifications. `inhibits`: while this alert fires, alerts of these rules about the same subject,
    or about topics of the same producer, send no notification.
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
    """Patterns of the subjects (`payments`, `orders.*`); empty for every subject."""
    shared: bool = False
    """Every producer on a store reports the same alert, so only one of them sends notifications."""


_OF_TOPICS = ("error_budget_fast", "error_budget_slow", "slow_delivery", "dead_letters_growing")
_OF_A_PRODUCER = (
    "high_error_rate",
    "high_latency",
    "delivery_stalled",
    "many_unsettled",
    "memory_near_limit",
    "circuit_opened",
)

RULES: Mapping[str, AlertRule] = MappingProxyType(
    {
        "error_budget_fast": AlertRule(
            "critical",
            "{subject}: {value:.2%} of messages became dead letters within {long}, {factor} times the rate that the "
            "objective of {objective} allows",
            "Open the errors of this topic: one group of dead letters usually shows the cause. Fix it, then replay.",
            condition=BurnRate(),
            keep_firing_for=5 * MINUTE,
            inhibits=("error_budget_slow", "dead_letters_growing"),
        ),
        "error_budget_slow": AlertRule(
            "warning",
            "{subject}: {value:.2%} of messages became dead letters within {long}, {factor} times the rate that the "
            "objective of {objective} allows",
            "Not urgent. Review the groups of dead letters this week: a few causes usually account for most of them.",
            condition=BurnRate(pairs=SLOW),
            keep_firing_for=HOUR,
        ),
        "slow_delivery": AlertRule(
            "warning",
            "{subject}: {says}; the limit is {threshold:g} s",
            "Open the Latency page. It shows whether the queue is full, the client is throttled, or a single broker is "
            "slow.",
            condition=Threshold("latency_p99", above=10.0, min_events=100),
            for_=5 * MINUTE,
            keep_firing_for=10 * MINUTE,
        ),
        "dead_letters_old": AlertRule(
            "warning",
            "{subject}: {says}",
            "Replay or archive them. Old dead letters hide new failures.",
            condition=Threshold("dlq_age", above=DAY, by="topic"),
            for_=MINUTE,
        ),
        "dead_letters_growing": AlertRule(
            "warning",
            "{subject}: {says} (last {window})",
            "Open the newest group of dead letters and follow its advice.",
            condition=Threshold("dlq_growth", above=1000.0, window=15 * MINUTE),
            for_=MINUTE,
            keep_firing_for=10 * MINUTE,
        ),
        "decision_objective_missed": AlertRule(
            "critical",
            "{subject}: {met} of the dead letters were decided in time, the objective is {objective}; {overdue} past the "
            "deadline",
            "Replay or archive the oldest dead letters of the topic first.",
            condition=ObjectiveMissed(),
            keep_firing_for=MINUTE,
            inhibits=("decision_objective_burn", "dead_letters_old"),
        ),
        "decision_objective_burn": AlertRule(
            "warning",
            "{subject}: {due} must be decided within an hour, the first by {first}; together with the last hour they use "
            "{value:,.0%} of the error budget, the objective is {objective}",
            "Replay or archive the oldest dead letters of the topic before their deadline.",
            condition=ObjectiveBurn(),
            keep_firing_for=MINUTE,
        ),
        "cause_returned": AlertRule(
            "warning",
            "{topic}: {code} is back {since}, {count} pending; {who} resolved it on {resolved}",
            "Open the group of dead letters: its history shows the earlier fix. Fix the cause again, then replay.",
            condition=CauseReturned(),
        ),
        "delivery_stalled": AlertRule(
            "critical",
            "{client}: no message has been settled for {after}; {value:,.0f} pending",
            "Check the connection and the brokers. Messages stay pending until their delivery timeout, which is a day "
            "with a journal.",
            condition=Absence("delivery", after=5 * MINUTE),
            for_=MINUTE,
            keep_firing_for=MINUTE,
        ),
        "many_unsettled": AlertRule(
            "warning",
            "{client}: {says}; the limit is {threshold:,.0f}",
            "The application sends faster than the brokers accept. Open the Latency page; reduce the send rate, or give "
            "the journal more disk space.",
            condition=Threshold("pending", above=100_000.0, by="producer"),
            for_=5 * MINUTE,
            keep_firing_for=5 * MINUTE,
        ),
        "memory_near_limit": AlertRule(
            "critical",
            "{client}: {says}; at 100% the process is killed",
            "Lower buffer_memory, raise the memory limit of the container, or find out why messages stay pending.",
            condition=Threshold("memory", above=0.95, by="producer"),
            for_=2 * MINUTE,
            keep_firing_for=5 * MINUTE,
            inhibits=("high_memory_usage",),
        ),
        "approval_requested": AlertRule(
            "warning",
            "{who} asks for the approval of a replay of {records} (request {subject}, until {expires}): {reason}",
            'Review the replay, then approve or refuse it: on the Replays page, or with "producer-core dlq approve" and '
            '"dlq refuse".',
            condition=PendingApproval(),
        ),
        "rules_file_refused": AlertRule(
            "warning",
            "The rules file {subject} is ignored, and the built-in rules apply: {reason}",
            'Correct the file, and verify it with "producer-core alerts check". It is reloaded automatically.',
            condition=InvalidRuleFile(),
        ),
        "notifications_failing": AlertRule(
            "warning",
            "Notifications via {subject} are failing: {reason}",
            'Run "producer-core alerts test" to see the response of the receiver. Failed notifications are kept and '
            "retried.",
            condition=RouteFailing(),
        ),
        "high_error_rate": AlertRule(
            "critical",
            "{value:.1%} of messages failed between checks; the limit is {threshold:.1%}",
            "Open the errors by topic: one group of dead letters usually shows the cause. Fix it, then replay.",
            keep_firing_for=5 * MINUTE,
        ),
        "high_latency": AlertRule(
            "warning",
            "Messages take {value:.0f} ms on average; the limit is {threshold:.0f} ms",
            "Check the load on the brokers, and check linger_ms. Time in a full queue adds to the latency.",
            keep_firing_for=5 * MINUTE,
        ),
        "high_dlq_size": AlertRule(
            "warning",
            "Pending dead letters: {value:,.0f}; the application warns above {threshold:,.0f} (dlq_size_threshold)",
            "Open the groups of dead letters, fix the causes, then replay or archive them. This is an early warning: the limit "
            "of the store is dlq_max_size.",
            keep_firing_for=5 * MINUTE,
            shared=True,
        ),
        "high_memory_usage": AlertRule(
            "warning",
            "The process uses {value:.0%} of its memory; the limit is {threshold:.0%}",
            "Lower buffer_memory, or find out why messages stay pending; often a broker is unreachable.",
            keep_firing_for=5 * MINUTE,
        ),
        "connection_lost": AlertRule(
            "critical",
            "No connection to the brokers: {reason}",
            "Check the address, the network and the credentials. Messages stay pending until their delivery timeout.",
            keep_firing_for=MINUTE,
            inhibits=(*_OF_TOPICS, *_OF_A_PRODUCER),
        ),
        "circuit_opened": AlertRule(
            "critical",
            "{text}",
            "Check the brokers and the errors of the topic. The circuit closes by itself once probes are acknowledged.",
            keep_firing_for=MINUTE,
        ),
        "store_unavailable": AlertRule(
            "critical",
            "The store cannot be written to: {reason}",
            "Sending continues, and dead letters are spilled to a file beside the store. Free up disk space, or release "
            "the lock.",
        ),
        "dedup_degraded": AlertRule(
            "warning",
            "Deduplication is unavailable: {reason}",
            "Messages are sent without the check until it recovers. Start Redis, or check its URL.",
            keep_firing_for=MINUTE,
        ),
        "dead_letter_topic_failing": AlertRule(
            "warning",
            "Dead letters have waited for their dead-letter topic for more than {minutes} min: {reason}",
            "Check that the topic exists and is not compacted, the WRITE permission on it, and its brokers. Sending "
            "continues, and the dead letters wait in the store. A store on an ephemeral disk is lost with its container.",
            keep_firing_for=MINUTE,
        ),
        "telemetry_failing": AlertRule(
            "warning",
            "Telemetry delivery to {topic} failed for {failed} of the last {windows} windows: {reason}",
            "Check the brokers of the telemetry topic, and the WRITE permission on it. Sending continues, and this store "
            "is complete. Undelivered windows are kept, and sent once the topic is available.",
            keep_firing_for=MINUTE,
        ),
        "telemetry_lost": AlertRule(
            "warning",
            "{text}",
            "The fleet's charts have a gap, and an audit lists the batches that are missing from the ledgers. To keep "
            "undelivered telemetry on disk, use a journal.",
        ),
        "ledger_lost": AlertRule(
            "warning",
            "{text}",
            "An audit reports these messages as not in the ledger. Find out why the store cannot be written to.",
        ),
        "fatal_error": AlertRule(
            "critical",
            "{text}",
            "The client is re-created automatically. If the error recurs, its text gives the broker's reason.",
        ),
        "producer_gone": AlertRule(
            "critical",
            "{client} has sent no heartbeat since {seen} UTC and was not closed; unsettled messages: {pending}",
            "Check the process on its host. Unsettled messages are lost unless the producer has a journal.",
            condition=Absence("producer", after=GONE_AFTER, lookback=FORGOTTEN_AFTER),
            inhibits=("connection_lost", "dedup_degraded", *_OF_A_PRODUCER),
        ),
        "loss_suspected": AlertRule(
            "critical",
            "{text}",
            "Wait for the result. The investigation is running; the alert resolves when it ends.",
        ),
        "acknowledged_lost": AlertRule(
            "critical",
            "{text}",
            "Look for an unclean leader election, a lost disk or a restored backup. Send the missing records again from "
            "their source, then acknowledge this alert and call producer.go_on(topic).",
            lasting=True,
        ),
        "producer_desynchronised": AlertRule(
            "warning",
            "{text}",
            "Nothing is lost. If this recurs, check the broker logs for restarts, and the broker's "
            "producer.id.expiration.ms.",
        ),
        "topic_recreated": AlertRule(
            "warning",
            "{text}",
            "If the deletion was not intended, send the records of the old topic again. Then acknowledge this alert.",
            lasting=True,
        ),
        "retention_removed": AlertRule(
            "info",
            "{text}",
            "No action needed. Increase the retention if consumers had not read the records yet.",
        ),
        "standing_unknown": AlertRule(
            "warning", "{text}", "Grant READ and DESCRIBE on the topic, or restore the connection."
        ),
        "order_break": AlertRule(
            "warning",
            "{text}",
            'Consumers that need per-key order must verify it themselves. ordering="strict" keeps one message per '
            "key in flight; exactly-once delivery keeps the order of every partition.",
        ),
        "epoch_rose": AlertRule(
            "info",
            "{text}",
            "No action needed if messages were rejected at that time. Otherwise, check the broker logs from that time.",
        ),
        "fenced": AlertRule(
            "critical",
            "{text}",
            "Only one process may use a transactional id. Stop one of the two, or give each its own id.",
        ),
        "shard_ended": AlertRule(
            "critical", "{text}", "Restart the process. It then sends the journaled messages."
        ),
        "transactions_failing": AlertRule(
            "critical", "{text}", "Check the brokers, and the permissions for the transactional id."
        ),
        "read_back_waits": AlertRule(
            "warning", "{text}", "Find the open transaction on the partition, and abort it."
        ),
        "read_back_refused": AlertRule(
            "critical", "{text}", "Follow the instructions above. Nothing is sent until you do."
        ),
        "journal_full": AlertRule(
            "critical",
            "{text}",
            "Free up disk space, raise the limit of the journal, or find out why the brokers are not accepting messages.",
        ),
        "journal_torn": AlertRule(
            "warning", "{text}", "No action needed after a crash: the incomplete entry was never accepted."
        ),
        "journal_damaged": AlertRule(
            "critical",
            "{text}",
            "Check the disk. The damaged bytes are kept in a separate file; all other entries are processed.",
            lasting=True,
        ),
        "store_replaced": AlertRule(
            "critical",
            "{text}",
            "Stop the producers before you replace the file of a store. If the old file still exists, export "
            'its dead letters with "producer-core dlq export". Otherwise, send them again from their source. Then '
            "acknowledge this alert.",
            lasting=True,
        ),
        "dlq_over_bound": AlertRule(
            "warning",
            "{text}",
            'Nothing is dropped. List the causes with "producer-core dlq groups"; change the limit with "producer-core '
            'store set".',
        ),
        "weak_replication": AlertRule(
            "warning", "{text}", "Set the replication factor to 3 and min.insync.replicas to 2."
        ),
    }
)
