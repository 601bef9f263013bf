-- Audits of topics: their progress and findings.

-- name: audit_marks_of
-- The audited offset of each partition of a topic.
SELECT partition, verified_until, audit_id FROM audit_marks WHERE cluster_id = $cluster AND topic = $topic
ORDER BY partition;

-- name: audit_incarnations
-- The names under which a topic's marks are kept: one for each time that it was created.
SELECT DISTINCT topic FROM audit_marks
WHERE cluster_id = $cluster AND starts_with(topic, $topic || ' ') AND NOT contains(topic, ' < ');

-- name: audit_waiting
-- Messages that the last incremental audit could not judge: acknowledged at an unknown offset, perhaps not visible yet.
SELECT DISTINCT message_id FROM audit_findings
WHERE kind = 'pending' AND "offset" IS NULL
  AND audit_id IN (SELECT audit_id FROM audit_marks WHERE cluster_id = $cluster AND topic = $topic)
ORDER BY message_id;

-- name: begin_audit
-- Start an audit; its counts are NULL until it has finished.
INSERT INTO audits (audit_id, topic, cluster_id, started_at, seen_at, state, isolation)
VALUES ($id, $topic, $cluster, $started, $started, 'running', $isolation);

-- name: audit_seen
-- Record the heartbeat of an audit.
UPDATE audits SET seen_at = $now WHERE audit_id = $id AND state = 'running';

-- name: fail_audit
-- Record the failure of an audit.
UPDATE audits SET state = 'failed', finished_at = $now, sentence = $sentence WHERE audit_id = $id;

-- name: finish_audit
-- Record the results of an audit.
UPDATE audits SET state = 'done', finished_at = $finished, since = $since, until = $until, ranges = $ranges,
    records = $records, ours = $ours, foreign_records = $foreign_records, acknowledged = $acknowledged,
    lost = $lost, duplicated = $duplicated, reordered = $reordered, expired = $expired, pending = $pending,
    unledgered = $unledgered, given_up = $given_up, given_up_found = $given_up_found, undecided = $undecided,
    ledger_gaps = $ledger_gaps, ledger_lost = $ledger_lost, strange = $strange, notes = $notes, auditable = $auditable,
    sentence = $sentence, findings_path = $findings_path
WHERE audit_id = $id;

-- name: add_audit_findings
-- Insert the findings of an audit; `new_findings` is a view registered by the caller.
INSERT INTO audit_findings (audit_id, kind, message_id, partition, "offset", other_offset, text)
SELECT audit_id, kind, message_id, partition, "offset", other_offset, text FROM new_findings;

-- name: move_audit_mark
-- Set the offset where the next audit of this partition starts.
INSERT INTO audit_marks VALUES ($cluster, $topic, $partition, $until, $audit)
ON CONFLICT (cluster_id, topic, partition) DO UPDATE SET verified_until = excluded.verified_until,
    audit_id = excluded.audit_id;
