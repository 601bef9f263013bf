-- name: add_records
-- Adds records.
INSERT INTO log FROM decoded('arriving')

-- name: add_single_records
-- Adds those records that are at their expected position.
INSERT INTO log FROM decoded('arriving') SEMI JOIN surplus USING (partition, session, seq, off)

-- name: add_groups
-- Adds the log's groups of a slice, as Spark has summed them.
INSERT INTO log_pieces BY NAME SELECT * REPLACE (session::UUID AS session) FROM arriving

-- name: topic_rows
-- Selects the ledger's rows about the topic of this cluster, with the span of their partition and the zones of their
-- first and last offset.
WITH about AS (
    SELECT * EXCLUDE (seqs, offs), coalesce({fresh}, false) AS fresh, coalesce({old}, false) AS old FROM ledger_rows
    WHERE topic = $topic AND ($cluster = '' OR cluster_id IN ('', $cluster)))
SELECT about.*, span, zone(off_min, old, span) AS zone, zone(off_max, old, span) AS last_zone
FROM about LEFT JOIN spans USING (partition)

-- name: late_starts
-- Returns per partition the first offset below the range that a fresh row is about.
SELECT partition, min(off_min) FROM topic_rows WHERE off_min >= 0 AND off_min < span.start AND fresh GROUP BY partition

-- name: rows_in_doubt
-- Adds `doubt` to the rows that no earlier audit judged: whether the order within a row, or between it and other rows of
-- its session and partition, is uncertain. In the order of offsets, rows should not overlap and should rise; then a log
-- that equals them is in order, too. The whole history of the ledger is compared, so that a range is judged with the
-- rows before it.
WITH rows AS (
    SELECT *, off_min >= 0 AND (span."end" IS NULL OR off_min < span."end") AS placed
    FROM topic_rows WHERE zone <> 'judged' OR last_zone <> 'judged'),
beside AS (
    SELECT *, max(highest) OVER earlier AS top, max(off_max) OVER earlier AS reach, lead(off_min) OVER in_order AS next
    FROM rows
    WINDOW in_order AS (PARTITION BY placed, partition, session ORDER BY off_min, lowest),
           earlier AS (PARTITION BY placed, partition, session ORDER BY off_min, lowest
                       ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING))
SELECT * EXCLUDE (placed, top, reach, next),
    coalesce(placed AND (falls OR lowest <= top OR off_min <= reach OR next <= off_max), false) AS doubt
FROM beside

-- name: zones
-- Returns the zones in which the rows begin and end.
SELECT DISTINCT unnest([zone, last_zone]) FROM rows_in_doubt

-- name: log_groups
-- Returns the log's groups: count, sum, fingerprint, lowest and highest offset of a window of one session in one
-- partition. Records without a message id form one group per partition, without a session.
SELECT partition, session, seq >> 12 AS window_no, count(*) AS n, sum(place(seq)) AS s, sum(mark(seq, off)) AS f,
       min(off) AS off_min, max(off) AS off_max
FROM log GROUP BY ALL

-- name: merged_groups
-- Returns the log's groups from those of all slices.
SELECT partition, session, window_no, sum(n) AS n, sum(s) AS s, sum(f) AS f, min(off_min) AS off_min, max(off_max) AS off_max
FROM log_pieces GROUP BY ALL

-- name: doubled
-- Returns groups with a message that was acknowledged at two places, which equal sums do not show. The sums rule it out
-- for a window in which every sequence between the lowest and the highest was acknowledged or given up once, in any
-- topic, and for a window in one partition only, where the rows' order shows it.
WITH sums AS (
    SELECT session, window_no, n, s, lowest, highest FROM ledger_rows
    UNION ALL SELECT session, window_no, 1, place(seq), seq, seq FROM dead_letters),
windows AS (
    SELECT session, window_no, sum(n) AS n, sum(s) AS s, min(lowest) AS low, max(highest) AS high FROM sums GROUP BY ALL),
spread AS (
    SELECT session, window_no FROM rows_in_doubt WHERE off_min >= 0
    GROUP BY ALL HAVING min(partition) <> max(partition)),
loose AS (
    SELECT session, window_no FROM windows SEMI JOIN spread USING (session, window_no)
    WHERE NOT (n = high - low + 1 AND 2 * s = n * (place(low) + place(high)))),
chosen AS (FROM rows_in_doubt SEMI JOIN loose USING (session, window_no) WHERE off_min >= 0),
each AS (
    SELECT DISTINCT partition, session, window_no, seq, entry.off
    FROM entries('chosen') AS entry JOIN rows_in_doubt USING (row_id)),
twice AS (SELECT session, seq FROM each GROUP BY ALL HAVING count(*) > 1)
SELECT DISTINCT partition, session, window_no FROM each SEMI JOIN twice USING (session, seq)

-- name: compared
-- Joins both sides of each group, NULL for a missing side. `unequal`: the log differs from the ledger, or the topic is
-- compacted. `doubtful`: equal, but order or uniqueness is uncertain.
WITH ledger AS (
    SELECT partition, session, window_no, sum(n) AS ledger_n, sum(s) AS ledger_s, sum(f) AS ledger_f, bool_or(doubt) AS doubt
    FROM pieces('rows_in_doubt') WHERE zone = 'inside' GROUP BY ALL),
both_sides AS (
    SELECT *, min(off_min) OVER (
        PARTITION BY partition, session ORDER BY window_no ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING) AS higher
    FROM log_groups FULL JOIN ledger USING (partition, session, window_no)
         LEFT JOIN (SELECT *, true AS twice FROM doubled) USING (partition, session, window_no))
SELECT * EXCLUDE (higher, doubt, twice),
    session IS NOT NULL AND ($compacted OR n IS DISTINCT FROM ledger_n OR s IS DISTINCT FROM ledger_s
        OR f IS DISTINCT FROM ledger_f) AS unequal,
    session IS NOT NULL AND (coalesce(doubt, false) OR (ledger_n IS NOT NULL AND coalesce(twice, false))
        OR coalesce(off_max > higher, false)) AS doubtful
FROM both_sides

-- name: counts
-- Counts records, records without a message id, acknowledgements, and groups of both kinds of suspects.
SELECT coalesce(sum(n), 0)::BIGINT, coalesce(sum(n) FILTER (session IS NULL), 0)::BIGINT,
       coalesce(sum(ledger_n), 0)::BIGINT, count(*) FILTER (unequal), count(*) FILTER (doubtful)
FROM compared

-- name: ledger_entries
-- Returns the ledger's entries in the windows of suspects, and of rows whose messages are all reported by id, in all
-- partitions and at all offsets, each place once. `noted` is when an entry without an offset was written, if its row is
-- fresh or the previous audit could not judge it; `old` marks a place whose entries are all old.
WITH windows AS (
    SELECT session, window_no FROM compared WHERE unequal OR doubtful
    UNION SELECT session, window_no FROM rows_in_doubt WHERE zone IN {always} OR last_zone IN {always}),
chosen AS (FROM rows_in_doubt SEMI JOIN windows USING (session, window_no)),
each AS (
    SELECT session, seq, rows.partition, entry.off, old, waits, fresh, CASE WHEN off_min < 0 THEN written_at END AS noted
    FROM entries('chosen') AS entry JOIN rows_in_doubt AS rows USING (row_id)
         LEFT JOIN (SELECT session::UUID AS session, seq, true AS waits FROM waiting) USING (session, seq))
SELECT session, seq, partition, off, seq >> 12 AS window_no, max(noted) FILTER (fresh OR waits) AS noted, bool_and(old) AS old
FROM each GROUP BY session, seq, partition, off

-- name: ledger
-- Adds the zone of each entry, and drops entries that were judged before.
SELECT session, seq, partition, off, window_no, noted, zone(off, old, span) AS zone
FROM ledger_entries LEFT JOIN spans USING (partition)
WHERE zone(off, old, span) <> 'judged'

-- name: differing
-- Returns the unequal groups with the sums of the ledger's entries, each once. `repeats`: how many entries occurred more
-- than once; `differs`: whether the log still differs from the ledger.
WITH sums AS (
    SELECT partition, session, window_no, count(*) AS once_n, sum(place(seq)) AS once_s, sum(mark(seq, off)) AS once_f
    FROM ledger WHERE zone = 'inside' GROUP BY ALL)
SELECT * EXCLUDE (once_n, once_s, once_f, ledger_n)
    REPLACE (coalesce(once_s, 0) AS ledger_s, coalesce(once_f, 0) AS ledger_f),
    coalesce(once_n, 0) AS once_n, coalesce(ledger_n, 0) - coalesce(once_n, 0) AS repeats,
    n IS DISTINCT FROM coalesce(once_n, 0) OR s IS DISTINCT FROM coalesce(once_s, 0)
        OR f IS DISTINCT FROM coalesce(once_f, 0) AS differs
FROM compared LEFT JOIN sums USING (partition, session, window_no) WHERE unequal

-- name: repeats
-- Counts the ledger's repeated entries.
SELECT coalesce(sum(repeats), 0)::BIGINT FROM differing

-- name: missing
-- Returns the one acknowledged message that a group lacks: the remainder of its sums is a sequence and its offset, and the
-- ledger has that entry.
SELECT partition, session, window_no, seq, off
FROM ledger JOIN differing USING (partition, session, window_no)
WHERE $arithmetic AND zone = 'inside' AND once_n - coalesce(n, 0) = 1 AND place(seq) = ledger_s - coalesce(s, 0)
    AND mark(seq, off) = ledger_f - coalesce(f, 0)

-- name: surplus
-- Returns the expected position of a group's one record beyond the ledger, where exactly one offset is possible.
WITH long AS (
    SELECT *, s - ledger_s AS place, f - ledger_f AS mark FROM differing WHERE n - once_n = 1),
whole AS (
    SELECT *, mark // (place + 1) AS remainder FROM long
    WHERE place BETWEEN 0 AND 4095 AND mark >= 0 AND mark % (place + 1) = 0),
named AS (
    SELECT *, off_min + (remainder - off_min % 16777213 + 16777213) % 16777213 AS off FROM whole WHERE remainder < 16777213)
SELECT partition, session, window_no, ((window_no << 12) + place)::BIGINT AS seq, off::BIGINT AS off
FROM named WHERE off <= off_max AND off + 16777213 > off_max

-- name: surplus_places
-- Returns these positions as intervals.
SELECT partition, off AS off_min, off AS off_max FROM surplus ORDER BY ALL

-- name: surplus_groups
-- Returns the keys of their groups.
SELECT partition, session::BLOB AS session, window_no FROM surplus

-- name: read_groups
-- Selects the groups whose records decide: those that still differ, without those that arithmetic explains.
WITH explained AS (
    SELECT partition, session, window_no FROM missing
    UNION SELECT partition, session, seq >> 12 FROM log WHERE $by_sums)
SELECT partition, session, window_no, n, off_min, off_max
FROM differing ANTI JOIN explained USING (partition, session, window_no) WHERE differs OR $compacted

-- name: intervals
-- Returns the positions of these groups' records: for many groups, a few thousand intervals (`step` offsets each).
SELECT partition, min(off_min) AS off_min, max(off_max) AS off_max FROM read_groups WHERE n IS NOT NULL
GROUP BY partition, off_min // $step

-- name: groups_to_read
-- Returns the keys of these groups.
SELECT partition, session::BLOB AS session, window_no FROM read_groups

-- name: seen
-- Selects the records of suspects; after sums, no others were read.
SELECT log.partition, off, log.session, seq
FROM log LEFT JOIN read_groups ON log.partition = read_groups.partition AND log.session = read_groups.session
    AND log.seq >> 12 = read_groups.window_no
WHERE $by_sums OR window_no IS NOT NULL

-- name: entries_in_question
-- Selects the entries that decide about a message: those of suspect groups and outside the range, and all others of the
-- same messages. The rest of a suspect window is in groups of other partitions, which equal the log.
WITH suspects AS (SELECT partition, session, window_no FROM compared WHERE unequal OR doubtful),
asked AS (
    SELECT session, seq FROM ledger SEMI JOIN suspects USING (partition, session, window_no)
    UNION SELECT session, seq FROM ledger WHERE zone <> 'inside'
    UNION SELECT session, seq FROM seen)
FROM ledger_entries SEMI JOIN asked USING (session, seq)

-- name: expired_ranges
-- Counts per partition the acknowledgements below the low watermark, with the first and last offset, and how many of them
-- expired while the range was read. In an incremental audit, late rows may be about offsets that expired before any
-- audit read them.
WITH rows AS (
    SELECT * REPLACE (CASE WHEN $incremental AND zone = 'gone' AND fresh THEN 'expired' ELSE zone END AS zone,
                      CASE WHEN $incremental AND last_zone = 'gone' AND fresh THEN 'expired' ELSE last_zone END AS last_zone),
           false AS doubt
    FROM topic_rows)
SELECT partition, sum(n)::BIGINT, min(off_min), max(off_max), coalesce(sum(n) FILTER (zone = 'taken'), 0)::BIGINT
FROM pieces('rows')
WHERE zone = 'taken' OR (zone = 'expired' AND ($since IS NULL OR written_at >= $since))
GROUP BY partition ORDER BY partition

-- name: beyond
-- Counts the messages that were acknowledged above the log's end and not also within the range.
SELECT count(DISTINCT (session, seq)) FROM ledger
    ANTI JOIN (SELECT session, seq FROM ledger WHERE zone = 'inside') AS inside USING (session, seq)
WHERE zone = 'beyond'
