-- When a dead letter failed for the first time. Only a dead letter that failed again, in a replay, has a value; for the others
-- it is failed_at. The clock of a decision objective starts then.

-- DuckDB cannot alter a table with triggers; they are created again as in 0005.
DROP TRIGGER dead_letters_in ON dead_letters;
DROP TRIGGER dead_letters_out ON dead_letters;
DROP TRIGGER dead_letters_changed ON dead_letters;
DROP INDEX dead_letters_by_id;

ALTER TABLE dead_letters ADD COLUMN first_failed_at DOUBLE;
-- The version of the application whose attempt failed last; the empty text for an unknown one.
ALTER TABLE dead_letters ADD COLUMN application_version VARCHAR DEFAULT '';

CREATE INDEX dead_letters_by_id ON dead_letters (message_id);

CREATE TRIGGER dead_letters_in AFTER INSERT ON dead_letters REFERENCING NEW TABLE AS fresh FOR EACH STATEMENT
INSERT INTO dead_letter_counts
SELECT floor(failed_at / 3600)::BIGINT, cluster_id, topic, state, verdict, kind, code, fingerprint, count(*), false
FROM fresh GROUP BY ALL;

CREATE TRIGGER dead_letters_out AFTER DELETE ON dead_letters REFERENCING OLD TABLE AS gone FOR EACH STATEMENT
INSERT INTO dead_letter_counts
SELECT floor(failed_at / 3600)::BIGINT, cluster_id, topic, state, verdict, kind, code, fingerprint, -count(*), false
FROM gone GROUP BY ALL;

CREATE TRIGGER dead_letters_changed AFTER UPDATE ON dead_letters
REFERENCING OLD TABLE AS gone NEW TABLE AS fresh FOR EACH STATEMENT
INSERT INTO dead_letter_counts
SELECT hour, cluster_id, topic, state, verdict, kind, code, fingerprint, sum(sign)::BIGINT, false
FROM (SELECT floor(failed_at / 3600)::BIGINT AS hour, cluster_id, topic, state, verdict, kind, code, fingerprint,
             1 AS sign FROM fresh
      UNION ALL
      SELECT floor(failed_at / 3600)::BIGINT, cluster_id, topic, state, verdict, kind, code, fingerprint, -1
      FROM gone)
GROUP BY hour, cluster_id, topic, state, verdict, kind, code, fingerprint HAVING sum(sign) <> 0;

-- When each dead letter was decided: replayed, found on its topic, or archived. NULL while it is pending or being replayed, and
-- again after it was restored. A purged one was decided when it was archived. Dead letters that another store had decided when
-- they were imported are left out, because the time of the decision is not known here. An edit that archives its original is no
-- decision either: the edit, which is a dead letter of its own, is pending with the clock of the original.
CREATE VIEW dead_letter_decisions AS
SELECT d.message_id, d.cluster_id, d.topic, d.verdict, d.accepted_at, d.state_at,
       coalesce(d.first_failed_at, d.failed_at) AS first_failed_at,
       CASE WHEN d.state IN ('replayed', 'landed', 'archived') THEN d.state_at
            WHEN d.state = 'purged' THEN coalesce(e.archived_at, d.state_at) END AS decided_at
FROM dead_letters d
LEFT JOIN (
    SELECT message_id, max(happened_at) AS archived_at FROM letter_events
    WHERE what = 'archived' AND message_id IN (SELECT message_id FROM dead_letters WHERE state = 'purged')
    GROUP BY message_id
) e ON e.message_id = d.message_id
ANTI JOIN (SELECT message_id, happened_at FROM letter_events WHERE what = 'imported') i
    ON i.message_id = d.message_id
   AND i.happened_at = CASE WHEN d.state NOT IN ('dead', 'replaying') THEN d.state_at END
WHERE d.message_id NOT IN (
    SELECT replaced_id FROM dead_letter_revisions WHERE replaced_id IS NOT NULL AND undone_at IS NULL);
