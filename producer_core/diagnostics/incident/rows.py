"""Select the rows of each table that belong to an incident.

A statement is formatted with the bounds of the range: `begin` (of the previous period), `since` and `until`. The database
`whole` is the copy of the live store, `work.incident_letters` has the ids of the selected dead letters, and
`work.incident_objectives` the seconds of each decision objective.
"""

from __future__ import annotations

from collections.abc import Mapping

from producer_core._internal.decision_objective import SETTING as OBJECTIVES
from producer_core._internal.removed_clusters import SETTING as REMOVED_CLUSTERS
from producer_core.store.setting_values import BOUNDS, KEPT

SETTINGS = (*KEPT, *BOUNDS, OBJECTIVES, REMOVED_CLUSTERS)
"""The settings of the store in the bundle: those that decide which figures a page has."""

DEAD_LETTERS = """
SELECT message_id FROM whole.dead_letters
WHERE (failed_at >= {begin} AND failed_at < {until}) OR (state_at >= {since} AND state_at < {until})
UNION SELECT message_id FROM whole.letter_events WHERE happened_at >= {since} AND happened_at < {until}
UNION SELECT message_id FROM whole.operation_records WHERE settled_at >= {since} AND settled_at < {until}
UNION SELECT message_id FROM whole.dead_letters WHERE first_failed_at >= {begin} AND first_failed_at < {until}
UNION SELECT message_id FROM whole.dead_letters
LEFT JOIN work.incident_objectives own USING (topic)
LEFT JOIN work.incident_objectives every ON every.topic = '*'
WHERE coalesce(first_failed_at, failed_at) + coalesce(own.allowed, every.allowed) BETWEEN {since} AND {until}"""
"""The dead letters that failed in the range or in the previous period, that an operator or a replay changed, or that an
operator should have decided on by a time in the range."""

_STATISTICS = "window_start + resolution > {begin} AND window_start < {until}"
_SELECTED = "message_id IN (SELECT message_id FROM work.incident_letters)"
_REVISIONS = f"{_SELECTED} OR replaced_id IN (SELECT message_id FROM work.incident_letters)"
_OPERATIONS = "created_at < {until} AND coalesce(finished_at, {since}) >= {since}"
_ALERTS = "started_at < {until} AND coalesce(resolved_at, {since}) >= {since}"
_AUDITS = "started_at < {until} AND coalesce(finished_at, seen_at) >= {since}"
_CAUSES = (
    "(resolved_at < {until} AND coalesce(ended_at, {since}) >= {since})"
    f" OR fingerprint IN (SELECT fingerprint FROM whole.dead_letters WHERE {_SELECTED})"
)

ROWS: Mapping[str, str] = {
    **dict.fromkeys(
        ("statistics", "latencies", "errors", "client_statistics", "broker_statistics"), _STATISTICS
    ),
    "producers": (
        "(started_at < {until} AND seen_at >= {begin})"
        f" OR producer_id IN (SELECT producer_id FROM whole.statistics WHERE {_STATISTICS})"
        f" OR producer_id IN (SELECT producer_id FROM whole.dead_letters WHERE {_SELECTED})"
    ),
    **dict.fromkeys(("dead_letters", "dead_letter_bodies", "letter_events"), _SELECTED),
    "dead_letter_revisions": _REVISIONS,
    "cause_resolutions": _CAUSES,
    "operations": _OPERATIONS,
    **dict.fromkeys(
        ("operation_records", "replay_waves"),
        f"operation_id IN (SELECT operation_id FROM whole.operations WHERE {_OPERATIONS})",
    ),
    "replay_requests": (
        "(requested_at < {until} AND coalesce(closed_at, decided_at, {since}) >= {since})"
        f" OR operation_id IN (SELECT operation_id FROM whole.operations WHERE {_OPERATIONS})"
    ),
    "alerts": _ALERTS,
    "alert_outbox": f"alert_id IN (SELECT alert_id FROM whole.alerts WHERE {_ALERTS})",
    "alert_routes": "true",
    "silences": 'created_at < {until} AND "until" >= {since}',
    "notices": "noticed_at >= {since} AND noticed_at < {until}",
    "audit": "acted_at >= {since} AND acted_at < {until}",
    "pipeline_jobs": "started_at < {until} AND coalesce(ended_at, {since}) >= {since}",
    "audits": _AUDITS,
    "audit_findings": f"audit_id IN (SELECT audit_id FROM whole.audits WHERE {_AUDITS})",
    "compression_samples": f"producer_id IN (SELECT producer_id FROM whole.statistics WHERE {_STATISTICS})",
    "settings": f"name IN {SETTINGS}",
}
"""The condition on the rows of each table in the bundle."""

LEFT_OUT = frozenset(
    {
        "edit_drafts",  # private to the operator who types them
        "approval_policies",  # those of the reader apply
        "replay_requesters",  # nothing starts by itself in a bundle
        "replay_starts",  # no page shows them; the audit log has each start
        "merged_batches",
        "pipeline_progress",
        "leases",
        "ledger",
        "ledger_given_up",
        "audit_marks",
        "dead_letter_counts",  # computed again
        "required_features",
        "store_generation",
        "expired_statistics",
        "expired_latencies",
        "expired_errors",
        "expired_client_statistics",
        "expired_broker_statistics",
        "schema_migrations",
        "additive_migrations",
    }
)
"""The tables of which the bundle has no rows of the live store."""

SOURCES: Mapping[str, str] = {
    "cause_resolutions": """(
SELECT * REPLACE (
    CASE WHEN c.ended_at IS NULL THEN
        (SELECT min(d.failed_at) FROM whole.dead_letters d WHERE {again}) ELSE c.back_at END AS back_at,
    CASE WHEN c.ended_at IS NULL THEN
        (SELECT arg_min(d.application_version, d.failed_at) FROM whole.dead_letters d WHERE {again})
    ELSE c.back_in END AS back_in)
FROM whole.cause_resolutions c)""".replace(
        "{again}",
        "d.fingerprint = c.fingerprint AND d.failed_at > c.resolved_at AND (c.fixed_in = '' OR "
        "NOT list_contains(c.old_versions, coalesce(d.application_version, '')))",
    ),
}
"""Queries that replace tables: the first failure after a cause was resolved may be in no row of the bundle."""

EARLIER: Mapping[str, str] = {
    "statistics": """
SELECT * REPLACE (0 AS accepted, 0 AS acknowledged, 0 AS dead, 0 AS failed_attempts, 0 AS retried, 0 AS retry_successes,
                  0 AS duplicates, 0 AS possible_duplicates, 0 AS bytes, 0 AS latency_sum)
FROM whole.statistics WHERE window_start + resolution <= {begin} ORDER BY window_start LIMIT 1""",
    "errors": """
SELECT min(resolution) AS resolution, min(window_start) AS window_start, cluster_id, producer_id, topic, code, kind,
       0 AS count
FROM whole.errors WHERE window_start + resolution <= {begin} GROUP BY cluster_id, producer_id, topic, code, kind""",
}
"""Rows without counts, so that the pages know how far back the live store goes, and which error codes are not new."""

COUNTS = """
DELETE FROM dead_letter_counts;
INSERT INTO dead_letter_counts
SELECT floor(failed_at / 3600)::BIGINT, cluster_id, topic, state, verdict, kind, code, fingerprint, count(*), true
FROM dead_letters GROUP BY ALL"""
"""Counts the dead letters of a bundle's store. Triggers have counted them too, as differences."""
