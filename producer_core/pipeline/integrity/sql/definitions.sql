-- name: whole
-- Returns a whole number written as text, or NULL; a cast alone would round 7.5.
CREATE MACRO whole(written) AS CASE WHEN regexp_full_match(written, '[-+]?[0-9]+') THEN try_cast(written AS BIGINT) END

-- name: wholes
-- Returns a JSON array of whole numbers, or NULL; a number beyond 64 bits becomes NULL. A cast takes four times as long.
CREATE MACRO wholes(written) AS CASE
    WHEN regexp_full_match(written, '\[[-0-9, ]*\]') AND json_valid(written) THEN from_json(written, '["BIGINT"]') END

-- name: place
-- Returns the place of a sequence in its window of 4,096.
CREATE MACRO place(seq) AS seq & 4095

-- name: mark
-- Returns what a message adds to its group's fingerprint.
CREATE MACRO mark(seq, off) AS ((seq & 4095) + 1) * (off % 16777213)

-- name: zone
-- Returns the zone of an acknowledged offset, by the span of its partition (NULL for a partition that the topic does not
-- have); `old` marks a row written before the time that this audit covers.
-- unplaced: its offset is unknown; judged: an earlier audit judged it; beyond: above the log's end; before: audited
-- before; expired: expired unaudited; gone: expired below the requested range; inside: in the range; taken: removed from
-- the range by retention during the read; outside: above the requested range; pending: hidden by an open transaction;
-- newer: written since.
CREATE MACRO zone(off, old, span) AS CASE
    WHEN off < 0 THEN 'unplaced'
    WHEN old AND off >= coalesce(span.judged, 0) AND off >= coalesce(span.start, 0) THEN 'judged'
    WHEN span.start IS NULL OR (off >= span.after AND off >= span."end") THEN 'beyond'
    WHEN off < span.start AND off >= span.low THEN 'before'
    WHEN off < span.start AND off >= span.floor THEN 'expired'
    WHEN off < span.start THEN 'gone'
    WHEN off < span."end" AND off < span.low THEN 'taken'
    WHEN off < span."end" THEN 'inside'
    WHEN off < span.stable THEN 'outside'
    WHEN off < span.high THEN 'pending'
    ELSE 'newer' END

-- name: verdict
-- Returns the kind of a message that was acknowledged without an offset and is not in the range; NULL when an earlier
-- audit judged it. `settled` is the time from which an acknowledgement may lie above the range's end.
CREATE MACRO verdict(noted, hidden, settled, whole, final) AS CASE
    WHEN noted IS NULL THEN NULL
    WHEN hidden OR noted >= settled THEN 'pending'
    WHEN NOT whole THEN 'undecided'
    ELSE final END

-- name: ledger_rows
-- Holds no rows yet; a macro needs the table when it is created.
CREATE TABLE ledger_rows (row_id BIGINT, seqs VARCHAR, offs VARCHAR)

-- name: entries
-- Returns the acknowledgements of the given ledger rows, one per row; an unknown offset is -1.
CREATE MACRO entries(chosen) AS TABLE
    WITH lists AS (
        SELECT row_id, wholes(seqs) AS steps, wholes(offs) AS moves
        FROM ledger_rows SEMI JOIN query_table(chosen) USING (row_id)),
    each AS (SELECT row_id, generate_subscripts(steps, 1) AS turn, unnest(steps) AS step, unnest(moves) AS move FROM lists)
    SELECT row_id, (sum(step) OVER so_far)::BIGINT AS seq, coalesce(try_cast(sum(move) OVER so_far AS BIGINT), -1) AS off
    FROM each
    WINDOW so_far AS (PARTITION BY row_id ORDER BY turn ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)

-- name: pieces
-- Returns the sums of given rows by zone: a row in one zone whole, any other split.
CREATE MACRO pieces(rows) AS TABLE
    WITH cut AS (FROM query_table(rows) WHERE zone <> last_zone),
    split AS (
        SELECT cut.partition, session, window_no, zone(entry.off, old, span) AS zone, seq, entry.off, written_at, doubt
        FROM cut JOIN entries('cut') AS entry USING (row_id))
    SELECT partition, session, window_no, zone, n, s, f, off_min, off_max, written_at, doubt
    FROM query_table(rows) WHERE zone = last_zone
    UNION ALL
    SELECT partition, session, window_no, zone, count(*), sum(place(seq)), sum(mark(seq, off)), min(off), max(off),
           written_at, doubt
    FROM split GROUP BY partition, session, window_no, zone, written_at, doubt

-- name: decoded
-- Returns records with the session and the sequence of their ids, which arrive as their first 16 and last 8 bytes; an id
-- with a sequence beyond 63 bits is not an id.
CREATE MACRO decoded(rows) AS TABLE
    WITH ids AS (
        SELECT partition, "offset" AS off, first_bytes::UUID AS session, last_bytes::BIT::BIGINT AS seq FROM query_table(rows))
    SELECT partition, off, CASE WHEN seq >= 0 THEN session END AS session, CASE WHEN seq >= 0 THEN seq END AS seq FROM ids

-- name: log
-- Holds records: of the whole range, or of suspects only. Records without a message id have no session.
CREATE TABLE log (partition INTEGER, off BIGINT, session UUID, seq BIGINT)

-- name: log_pieces
-- Holds the sums of windows, of each slice that Spark has summed.
CREATE TABLE log_pieces (
    partition INTEGER, session UUID, window_no BIGINT, n BIGINT, s BIGINT, f BIGINT, off_min BIGINT, off_max BIGINT)

-- name: batches
-- Holds the ledgers' batches as they were read from topics and from the store.
CREATE TABLE batches (
    source VARCHAR, "position" BIGINT, "at" DOUBLE, v INTEGER, producer_id VARCHAR, sequence BIGINT, first BIGINT,
    cluster_id VARCHAR, ledger_lost BIGINT, ledger VARCHAR[][], given_up VARCHAR[][])

-- name: stored_numbers
-- Holds the batch numbers of producers whose ledger is in the store.
CREATE TABLE stored_numbers (producer_id VARCHAR, sequence BIGINT, first BIGINT)

-- name: findings
-- Holds all findings; `kind` is one of outcome.KINDS.
CREATE TABLE findings (
    kind VARCHAR, session UUID, seq BIGINT, partition INTEGER, off BIGINT, other_partition INTEGER, other_off BIGINT)
