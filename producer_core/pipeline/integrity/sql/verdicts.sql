-- name: places
-- Returns where messages are, each place once: records that were seen; the acknowledged places of groups that equal the
-- ledger, without those that arithmetic shows to be absent; and `earlier` places below the range, which an earlier audit
-- has seen or which expired. `copy` is 1 for the message itself and more for its copies. The original is the first record
-- in a partition where it was acknowledged; records elsewhere or later are copies.
WITH trusted AS (
    SELECT session, seq, partition, off FROM ledger
    ANTI JOIN read_groups USING (partition, session, window_no)
    ANTI JOIN missing USING (session, seq, partition, off)
    WHERE zone = 'inside'),
everywhere AS (
    SELECT session, seq, partition, off, false AS earlier FROM seen
    UNION ALL BY NAME SELECT *, false AS earlier FROM trusted
    UNION ALL BY NAME SELECT session, seq, partition, off, true AS earlier FROM ledger
    WHERE zone IN ('before', 'expired', 'taken', 'gone')),
once AS (
    SELECT session, seq, partition, off, seq >> 12 AS window_no, bool_and(earlier) AS earlier FROM everywhere GROUP BY ALL),
several AS (SELECT session, seq FROM once GROUP BY ALL HAVING count(*) > 1),
acked AS (SELECT DISTINCT session, seq, partition, 1 AS acked FROM ledger SEMI JOIN several USING (session, seq)),
copies AS (
    SELECT once.*, row_number() OVER originals AS copy, first_value(partition) OVER originals AS other_partition,
        first_value(off) OVER originals AS other_off
    FROM once SEMI JOIN several USING (session, seq) LEFT JOIN acked USING (session, seq, partition)
    WINDOW originals AS (PARTITION BY session, seq ORDER BY coalesce(acked, 0) DESC, earlier DESC, partition, off))
FROM copies UNION ALL BY NAME SELECT *, 1 AS copy FROM once ANTI JOIN several USING (session, seq)

-- name: duplicated
-- Every copy in the range of a message that is elsewhere, too.
SELECT 'duplicated' AS kind, session, seq, partition, off, other_partition, other_off FROM places WHERE copy > 1 AND NOT earlier

-- name: reordered
-- Messages after one of their session with a higher sequence, in the same partition. Copies do not count on either side,
-- nor do dead letters, which were dropped and sent again later. Within a window a running maximum decides; across windows
-- the offset where each higher window begins, and the highest sequence acknowledged below the range, whose offset is not
-- looked up (-1). A group whose records are all copies has no beginning.
WITH originals AS (SELECT session, seq, partition, off, window_no FROM places WHERE copy = 1 AND NOT earlier),
within AS (
    SELECT *, max(seq) OVER (
        PARTITION BY partition, session, window_no ORDER BY off ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS top
    FROM originals),
exact AS (SELECT partition, session, window_no, min(off) AS exact FROM originals GROUP BY ALL),
begins AS (
    SELECT partition, session, window_no, CASE WHEN unequal OR doubtful THEN exact ELSE off_min END AS begin
    FROM compared SEMI JOIN exact USING (partition, session) LEFT JOIN exact USING (partition, session, window_no)
    WHERE n IS NOT NULL),
highers AS (
    SELECT partition, session, window_no, min(begin) OVER (
        PARTITION BY partition, session ORDER BY window_no ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING) AS higher
    FROM begins),
below AS (FROM rows_in_doubt WHERE off_min >= 0 AND off_min < span.start),
crossing AS (FROM below WHERE off_max >= span.start),
before_range AS (
    SELECT partition, session, highest AS seq FROM below WHERE off_max < span.start
    UNION ALL
    SELECT partition, session, seq FROM entries('crossing') AS entry JOIN crossing USING (row_id)
    WHERE entry.off < crossing.span.start),
tops AS (SELECT partition, session, max(seq) AS before FROM before_range GROUP BY ALL),
late AS (
    SELECT * FROM within LEFT JOIN highers USING (partition, session, window_no) LEFT JOIN tops USING (partition, session)
    WHERE top > seq OR higher < off OR before > seq),
tops_seen AS (
    SELECT session, seq AS top, partition, off AS top_off
    FROM originals SEMI JOIN late ON originals.partition = late.partition AND originals.session = late.session
                                     AND originals.seq = late.top)
SELECT 'reordered' AS kind, session, seq, partition, off, partition AS other_partition,
    CASE WHEN top > seq THEN top_off WHEN higher < off THEN higher ELSE -1 END AS other_off
FROM late LEFT JOIN tops_seen USING (partition, session, top) ANTI JOIN dead_letters USING (session, seq)

-- name: unledgered
-- Messages in the log that are in no ledger, for information; dropped ones have a kind of their own.
SELECT CASE WHEN dead THEN 'given_up_found' ELSE 'unledgered' END AS kind, session, seq, partition, off
FROM places ANTI JOIN ledger USING (session, seq)
     LEFT JOIN (SELECT session, seq, true AS dead FROM dead_letters) USING (session, seq)
WHERE copy = 1 AND NOT earlier

-- name: pending
-- Messages that an open transaction hides.
SELECT 'pending' AS kind, session, seq, partition, off FROM ledger WHERE zone = 'pending'

-- name: lost
-- Messages that were acknowledged within the range, or above the log's end, and are nowhere in the log.
WITH gone AS (
    SELECT session, seq, partition, off
    FROM ledger LEFT JOIN (SELECT partition, session, window_no, unequal FROM compared) USING (partition, session, window_no)
         ANTI JOIN places USING (session, seq)
    WHERE zone = 'beyond' OR (zone = 'inside' AND unequal))
SELECT 'lost' AS kind, * FROM gone QUALIFY row_number() OVER (PARTITION BY session, seq ORDER BY partition, off) = 1

-- name: unplaced
-- Messages that were acknowledged without an offset and are not in the range.
WITH known AS (SELECT session, seq FROM places UNION SELECT session, seq FROM ledger WHERE zone <> 'unplaced'),
gone AS (
    SELECT session, seq, min(partition) AS partition, max(noted) AS noted
    FROM ledger ANTI JOIN known USING (session, seq) WHERE zone = 'unplaced' GROUP BY ALL)
SELECT verdict(noted, $hidden, $settled, $whole, $final) AS kind, session, seq, partition, NULL::BIGINT AS off FROM gone

-- name: finding_counts
-- Counts the messages of each kind.
SELECT kind, count(DISTINCT (session, seq)) FROM findings GROUP BY kind ORDER BY kind

-- name: named_findings
-- Returns findings as the report and the Parquet files have them.
SELECT kind, session || '-' || seq AS message_id, partition, off AS "offset", other_partition, other_off AS other_offset,
       session::BLOB AS session, seq
FROM findings
ORDER BY kind, partition, off, message_id

-- name: first_findings
-- Returns the first findings of each kind in the order of offsets.
SELECT kind, session || '-' || seq AS message_id, partition, off AS "offset", other_partition, other_off AS other_offset
FROM findings
QUALIFY row_number() OVER (PARTITION BY kind ORDER BY partition, off, message_id) <= $kept
ORDER BY kind, partition, off, message_id
