-- For ten million dead letters: find a key by a small hash of it, and compute groups from counts.

DROP INDEX dead_letters_by_id;
ALTER TABLE dead_letters ADD COLUMN key_mark UINTEGER;  -- dlq/coding.py key_mark; NULL without a key
UPDATE dead_letters SET key_mark = (md5_number_lower(key) & 4294967295)::UINTEGER WHERE key IS NOT NULL;
CREATE INDEX dead_letters_by_id ON dead_letters (message_id);

-- Numbers of dead letters per hour of failure, from which groups are computed. Triggers maintain them, so that every write
-- to dead_letters updates them within its own transaction. Rows are differences: the number of dead letters is the sum of n
-- over equal rows. store/dead_letter_counts.py sums them up from time to time.
-- DuckDB cannot alter a table with triggers: a later migration of dead_letters drops the three and creates them again.
CREATE TABLE dead_letter_counts (
    hour           BIGINT  NOT NULL,     -- of failed_at: seconds since 1970 / 3600, rounded down
    cluster_id     VARCHAR NOT NULL,
    topic          VARCHAR NOT NULL,
    state          VARCHAR NOT NULL,
    verdict        VARCHAR NOT NULL,
    kind           VARCHAR NOT NULL,
    code           VARCHAR NOT NULL,
    fingerprint    VARCHAR NOT NULL,
    n              BIGINT  NOT NULL,
    added          BOOLEAN NOT NULL      -- false: a difference that is not summed up yet
);

INSERT INTO dead_letter_counts
SELECT floor(failed_at / 3600)::BIGINT, cluster_id, topic, state, verdict, kind, code, fingerprint, count(*), true
FROM dead_letters GROUP BY ALL;

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
