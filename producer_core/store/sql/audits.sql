-- Queries of audits for the Fleet page.

-- name: last_audits
-- Per topic the last finished audit, the last two with faults, the last with a loss, and the last started; the
-- newest first.
SELECT audit_id, topic, cluster_id, started_at, seen_at, finished_at, state, isolation, since, until, ranges, records, ours,
       foreign_records, acknowledged, lost, duplicated, reordered, expired, pending, unledgered, given_up, given_up_found,
       undecided, ledger_gaps, ledger_lost, strange, notes, auditable, sentence, findings_path
FROM (SELECT *, coalesce(lost, 0) + coalesce(duplicated, 0) + coalesce(reordered, 0) > 0 AS faulty FROM audits)
WHERE $topic IS NULL OR topic = $topic
QUALIFY row_number() OVER (PARTITION BY cluster_id, topic ORDER BY started_at DESC, audit_id) = 1
     OR (state = 'done'
         AND row_number() OVER (PARTITION BY cluster_id, topic, state ORDER BY started_at DESC, audit_id) = 1)
     OR (faulty AND row_number() OVER (PARTITION BY cluster_id, topic, faulty ORDER BY started_at DESC, audit_id) <= 2)
     OR (lost > 0 AND row_number() OVER (PARTITION BY cluster_id, topic, lost > 0 ORDER BY started_at DESC, audit_id) = 1)
ORDER BY started_at DESC, audit_id LIMIT 3000;

-- name: one_audit
-- One audit by its id.
SELECT audit_id, topic, cluster_id, started_at, seen_at, finished_at, state, isolation, since, until, ranges, records, ours,
       foreign_records, acknowledged, lost, duplicated, reordered, expired, pending, unledgered, given_up, given_up_found,
       undecided, ledger_gaps, ledger_lost, strange, notes, auditable, sentence, findings_path
FROM audits WHERE audit_id = $audit;

-- name: audits_of_topic
-- The audits of a topic, the newest first.
SELECT audit_id, topic, cluster_id, started_at, seen_at, finished_at, state, isolation, since, until, ranges, records, ours,
       foreign_records, acknowledged, lost, duplicated, reordered, expired, pending, unledgered, given_up, given_up_found,
       undecided, ledger_gaps, ledger_lost, strange, notes, auditable, sentence, findings_path
FROM audits WHERE topic = $topic AND cluster_id = $cluster
ORDER BY started_at DESC, audit_id LIMIT $limit;

-- name: audit_findings_by
-- Numbers of stored findings of an audit, by kind and partition.
SELECT kind, partition, count(*) AS findings, count(DISTINCT message_id) AS messages
FROM audit_findings WHERE audit_id = $audit
GROUP BY kind, partition ORDER BY kind, partition;

-- name: audit_findings_of
-- Findings of an audit of one kind, by offset, each with the dead letter and the last replay of that message.
WITH found AS (
    SELECT message_id, partition, "offset", other_offset, text
    FROM audit_findings WHERE audit_id = $audit AND kind = $kind
    ORDER BY partition, "offset", message_id LIMIT $limit),
     stored AS (
    SELECT message_id, any_value(state) AS state, any_value(operation_id) AS operation_id
    FROM dead_letters WHERE message_id IN (SELECT message_id FROM found) GROUP BY message_id),
     replays AS (
    SELECT message_id, arg_max(records.operation_id, operations.created_at) AS operation_id
    FROM operation_records AS records JOIN operations USING (operation_id)
    WHERE message_id IN (SELECT message_id FROM found) GROUP BY message_id)
SELECT found.message_id, partition, "offset", other_offset, text, stored.state AS dead_letter_state,
       coalesce(stored.operation_id, replays.operation_id) AS operation_id
FROM found LEFT JOIN stored USING (message_id) LEFT JOIN replays USING (message_id)
ORDER BY partition, "offset", message_id;

-- name: audit_sources
-- Settings of the latest producer, if all producers use one cluster, and whether this store has a ledger of the topic.
SELECT (SELECT CASE WHEN count(DISTINCT cluster_id) = 1 THEN arg_max(settings, seen_at) END FROM producers
        WHERE cluster_id <> '' AND ($cluster IS NULL OR cluster_id = $cluster)) AS settings,
       EXISTS (SELECT 1 FROM ledger WHERE $topic IS NULL OR topic = $topic) AS has_ledger;
