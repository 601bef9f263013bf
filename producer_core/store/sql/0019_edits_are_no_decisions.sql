-- An edit of a dead letter that may be on its topic archives the original. This is no decision: the edit, which is a dead letter
-- of its own, is pending with the clock of the original.
CREATE OR REPLACE VIEW dead_letter_decisions AS
SELECT d.message_id, d.cluster_id, d.topic, d.verdict, d.accepted_at, d.state_at,
       coalesce(d.first_failed_at, d.failed_at) AS first_failed_at,
       CASE WHEN d.state IN ('replayed', 'landed', 'archived') THEN d.state_at
            WHEN d.state = 'purged' THEN coalesce(e.archived_at, d.state_at) END AS decided_at
FROM dead_letters d
LEFT JOIN (
    SELECT message_id, max(happened_at) FILTER (what = 'archived') AS archived_at,
           max(happened_at) FILTER (what = 'imported') AS imported_at
    FROM (SELECT message_id, happened_at, what FROM letter_events WHERE what = 'imported'
          UNION ALL
          SELECT message_id, happened_at, what FROM letter_events
          WHERE what = 'archived' AND message_id IN (SELECT message_id FROM dead_letters WHERE state = 'purged'))
    GROUP BY message_id
) e ON e.message_id = d.message_id
WHERE (d.state IN ('dead', 'replaying') OR e.imported_at IS NULL OR e.imported_at <> d.state_at)
  AND d.message_id NOT IN (
      SELECT replaced_id FROM dead_letter_revisions WHERE replaced_id IS NOT NULL AND undone_at IS NULL);
