-- name: add_batches
-- Adds batches.
INSERT INTO batches BY NAME FROM arriving

-- name: add_telemetry
-- Adds telemetry records as batches; `v` is NULL for a record that is not telemetry. Lists and numbers within an entry stay
-- JSON text.
INSERT INTO batches BY NAME
WITH parsed AS (
    SELECT source, "position", "at", CASE WHEN json_valid(value) THEN json_transform(value, '{
        "v": "JSON", "producer_id": "VARCHAR", "sequence": "JSON", "first": "JSON", "cluster_id": "VARCHAR",
        "ledger_lost": "JSON", "ledger": [["VARCHAR"]], "given_up": [["VARCHAR"]]}') END AS batch
    FROM arriving)
SELECT source, "position", "at", try_cast(whole(batch.v) AS INTEGER) AS v, batch.producer_id, whole(batch.sequence) AS sequence,
    whole(batch.first) AS first, batch.cluster_id, whole(batch.ledger_lost) AS ledger_lost, batch.ledger, batch.given_up
FROM parsed

-- name: add_stored_numbers
-- Adds batch numbers of the store.
INSERT INTO stored_numbers BY NAME FROM arriving

-- name: readable
-- Marks batches of this schema version with a producer and a number; their entries stay in `batches`.
SELECT * EXCLUDE (ledger, given_up), rowid AS batch_id, coalesce(v = $version AND producer_id IS NOT NULL AND sequence BETWEEN 0 AND $highest
    AND coalesce(first, sequence) BETWEEN 0 AND sequence AND coalesce(ledger_lost, 0) BETWEEN 0 AND $highest, false) AS readable
FROM batches

-- name: foreign_sources
-- Returns the sources that hold records but no batch of telemetry; newer schemas are telemetry.
SELECT source FROM batches GROUP BY source HAVING bool_and(v IS NULL)

-- name: telemetry_sources
-- Returns the sources that hold telemetry.
SELECT DISTINCT source FROM batches WHERE v IS NOT NULL

-- name: known
-- Selects each readable batch once, without batches that a combined one (first < sequence) without losses covers, and
-- with the cluster that its producer reported in other batches where it did not know it yet.
WITH numbered AS (
    SELECT *, coalesce(first, sequence) AS begins, coalesce(ledger_lost, 0) AS lost FROM readable_batches WHERE readable),
once AS (
    FROM numbered
    QUALIFY row_number() OVER (PARTITION BY producer_id, sequence ORDER BY lost > 0, begins, source, "position") = 1),
combined AS (SELECT producer_id, begins, sequence AS ends FROM numbered WHERE begins < sequence AND lost = 0)
SELECT * REPLACE (
    coalesce(nullif(cluster_id, ''), min(nullif(cluster_id, '')) OVER (PARTITION BY producer_id), '') AS cluster_id)
FROM once
WHERE NOT EXISTS (
    FROM combined
    WHERE combined.producer_id = once.producer_id AND once.begins >= combined.begins AND once.sequence < combined.ends)

-- name: ledger_counts
-- Counts the unreadable batches, and the acknowledgements left out of the ledgers.
SELECT (SELECT count(*) FROM readable_batches WHERE NOT readable),
       (SELECT coalesce(sum(ledger_lost), 0)::BIGINT FROM known)

-- name: gaps
-- Returns the batches that are missing between others of their producer.
WITH numbers AS (
    SELECT producer_id, begins AS first, sequence FROM known WHERE source <> $store
    UNION ALL BY NAME SELECT producer_id, coalesce(first, sequence) AS first, sequence FROM stored_numbers),
followed AS (
    SELECT *, max(sequence) OVER (
        PARTITION BY producer_id ORDER BY first, sequence ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
    FROM numbers)
SELECT producer_id, before + 1, first - 1 FROM followed WHERE first > before + 1 ORDER BY producer_id, first

-- name: all_rows
-- Splits the batches into ledger rows with the lowest and highest sequence; `falls` marks a row in which a sequence is
-- lower than the one before, `valid` a row whose number of sequences, window and sums do not contradict each other. The
-- columns of an entry are those of LedgerRow.
WITH entry AS (
    SELECT known.source, known."position", known."at" AS written_at, known.cluster_id, unnest(ledger) AS e
    FROM known JOIN batches ON batch_id = batches.rowid),
named AS (
    SELECT row_number() OVER () AS row_id, source, "position", written_at, cluster_id, try_cast(e[1] AS UUID) AS session,
        e[2] AS topic, try_cast(whole(e[3]) AS INTEGER) AS partition, whole(e[4]) AS window_no, whole(e[5]) AS n,
        whole(e[6]) AS s, coalesce(whole(e[7]), 0) AS f, whole(e[8]) AS late, whole(e[9]) AS off_min,
        whole(e[10]) AS off_max, e[11] AS seqs, e[12] AS offs, wholes(e[11]) AS steps,
        coalesce(list_min(steps[2:]) <= 0, false) AS falls
    FROM entry),
steps_of_late AS (
    SELECT row_id, generate_subscripts(steps, 1) AS turn, unnest(steps) AS step FROM named
    WHERE late IS DISTINCT FROM 0 OR falls),
seqs_of_late AS (
    SELECT row_id, sum(step) OVER (PARTITION BY row_id ORDER BY turn ROWS UNBOUNDED PRECEDING) AS seq FROM steps_of_late),
late_rows AS (SELECT row_id, min(seq) AS lowest, max(seq) AS highest FROM seqs_of_late GROUP BY row_id),
spread AS (
    SELECT * EXCLUDE (lowest, highest),
        CASE WHEN late = 0 AND NOT falls THEN steps[1]::HUGEINT ELSE lowest END AS lowest,
        CASE WHEN late = 0 AND NOT falls THEN list_sum(steps) ELSE highest END AS highest
    FROM named LEFT JOIN late_rows USING (row_id)),
checked AS (
    SELECT *, coalesce(session IS NOT NULL AND topic IS NOT NULL AND partition IS NOT NULL AND window_no IS NOT NULL
        AND n = list_count(steps) AND (off_min < 0 OR len(wholes(offs)) = n)
        AND lowest BETWEEN window_no::HUGEINT * 4096 AND window_no::HUGEINT * 4096 + 4095
        AND highest BETWEEN window_no::HUGEINT * 4096 AND window_no::HUGEINT * 4096 + 4095
        AND s BETWEEN 0 AND n::HUGEINT * 4095 AND f BETWEEN 0 AND n::HUGEINT * 4096 * 16777212, false) AS valid
    FROM spread)
SELECT * EXCLUDE (steps) REPLACE (try_cast(lowest AS BIGINT) AS lowest, try_cast(highest AS BIGINT) AS highest) FROM checked

-- name: ledger_rows
-- Selects the consistent rows.
SELECT * EXCLUDE (valid) FROM all_rows WHERE valid

-- name: invalid_rows
-- Counts the other rows.
SELECT count(*) FROM all_rows WHERE NOT valid

-- name: dead_letters
-- Selects the topic's messages that their producer dropped, each once. The columns of an entry are those of GivenUpRow.
WITH entry AS (SELECT unnest(given_up) AS e FROM known JOIN batches ON batch_id = batches.rowid),
named AS (SELECT try_cast(e[1] AS UUID) AS session, whole(e[2]) AS seq FROM entry WHERE e[3] = $topic)
SELECT DISTINCT session, seq, seq >> 12 AS window_no FROM named WHERE session IS NOT NULL AND seq IS NOT NULL
