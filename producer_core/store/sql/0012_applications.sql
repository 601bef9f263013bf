-- The name of the application that a producer belongs to, and that wrote a dead letter. Statistics have the producer's id,
-- from which the name follows; dead letters have the name as well, because they are copied to other stores. Rows of earlier
-- versions have no name, the empty text, and so do the rows that an earlier version adds to this store.

-- DuckDB cannot alter a table with triggers; they are created again as in 0005.
DROP TRIGGER dead_letters_in ON dead_letters;
DROP TRIGGER dead_letters_out ON dead_letters;
DROP TRIGGER dead_letters_changed ON dead_letters;
DROP INDEX dead_letters_by_id;

ALTER TABLE producers ADD COLUMN application VARCHAR DEFAULT '';
ALTER TABLE dead_letters ADD COLUMN application VARCHAR DEFAULT '';

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
