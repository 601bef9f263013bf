-- Replays as durable operations. All changes of a runner are compare-and-set inside one write transaction:
-- an operation by its owner, a record by its state, a dead letter by its state and its operation.

-- name: replay_same
-- The replay of this selection that has not ended yet, if there is one.
SELECT * FROM operations
WHERE selection = $selection AND state IN ('checking', 'ready', 'planned', 'running', 'paused')
ORDER BY created_at;

-- name: replay_insert
-- Insert an operation before its records are frozen.
INSERT INTO operations BY NAME
SELECT $operation_id AS operation_id, $cluster AS cluster_id, $selection AS selection, $state AS state,
       $who AS who, $origin AS origin, $now AS created_at, 0 AS total, 0 AS acknowledged, 0 AS landed,
       0 AS failed_again, 0 AS skipped, $rate::DOUBLE AS rate, $canary::BIGINT AS canary,
       $stop_percent::DOUBLE AS stop_percent, $stop_last::BIGINT AS stop_last, $newer AS newer,
       $inconclusive AS inconclusive, $go_at_once AS go_at_once, $reason AS reason;

-- name: replay_planned
-- Set the totals of a new operation from its frozen records.
UPDATE operations SET total = frozen.total, skipped = frozen.skipped
FROM (SELECT count(*) AS total, count(*) FILTER (WHERE state = 'skipped') AS skipped
      FROM operation_records WHERE operation_id = $operation) AS frozen
WHERE operation_id = $operation;

-- name: replay_runners
-- Live processes that run replays, the most recently seen first.
SELECT producer_id, cluster_id FROM producers
WHERE runs_replays AND closed_at IS NULL AND seen_at > $alive_since
ORDER BY seen_at DESC;

-- name: replay_candidates
-- Operations of a cluster that wait for a runner or had one; cancelled ones until their last record is settled.
-- Spark jobs run the operations that they planned, and no others. Under an approval policy, only an admitted one is sent.
SELECT operation_id, owner, lease_until, state = 'checking' AS checking FROM operations
WHERE cluster_id IN ('', $cluster) AND ($operation IS NULL OR operation_id = $operation)
  AND (origin = 'pipeline') = $by_spark
  AND (state IN ('checking', 'planned', 'running') OR state = 'paused' AND owner IS NOT NULL
       OR state = 'cancelled' AND finished_at IS NULL)
  AND (state NOT IN ('planned', 'running') OR NOT EXISTS (SELECT 1 FROM approval_policies)
       OR operation_id IN (SELECT operation_id FROM replay_starts))
ORDER BY created_at;

-- name: replay_take
-- Take an operation that is free or whose owner is gone; no row: another process was faster, or the owner is alive.
-- Under an approval policy, an operation is sent only after it was admitted.
-- The start time is set when its first runner begins to send, not by the earlier check or an operator's decision.
UPDATE operations
SET owner = $owner, lease_until = $now + $lease, message = NULL,
    started_at = CASE WHEN state IN ('planned', 'running') THEN coalesce(started_at, $now) ELSE started_at END,
    state = CASE WHEN state = 'planned' THEN 'running' ELSE state END
WHERE operation_id = $operation AND owner IS NOT DISTINCT FROM $seen_owner
  AND lease_until IS NOT DISTINCT FROM $seen_until
  AND (state IN ('checking', 'planned', 'running') OR state = 'paused' AND owner IS NOT NULL
       OR state = 'cancelled' AND finished_at IS NULL)
  AND (state NOT IN ('planned', 'running') OR NOT EXISTS (SELECT 1 FROM approval_policies)
       OR operation_id IN (SELECT operation_id FROM replay_starts));

-- name: replay_renew
-- Renew the lease; no row: another process has taken it, or the operation has ended.
UPDATE operations SET lease_until = $now + $lease WHERE operation_id = $operation AND owner = $owner;

-- name: replay_let_go
-- Release the lease; the operation stays unchanged for the next runner.
UPDATE operations SET owner = NULL, lease_until = NULL WHERE operation_id = $operation AND owner = $owner;

-- name: replay_switch
-- Move an operation from one of the allowed states to another; no row: it was in none of them.
UPDATE operations SET state = $state, message = $message
WHERE operation_id = $operation AND list_contains($allowed, state);

-- name: replay_next_records
-- The next pending records among those numbered $first to $last, in order: at most $max_bytes (with $allow_oversized, a
-- larger record is sent alone), up to the first record whose earlier attempt may still arrive after the time $arrived_by.
WITH next AS (
    SELECT rowid AS record, ord, message_id, coalesce(size, 0) AS size, not_before FROM operation_records
    WHERE operation_id = $operation AND state = 'pending' AND ord BETWEEN $first AND $last ORDER BY ord LIMIT $count),
summed AS (SELECT *, sum(size) OVER (ORDER BY ord) AS total, min(ord) OVER () AS first FROM next)
SELECT record, ord, message_id FROM summed
WHERE ord < (
    SELECT coalesce(min(ord), 9223372036854775807) FROM summed
    WHERE total > $max_bytes AND (ord > first OR NOT $allow_oversized) OR coalesce(not_before, 0) > $arrived_by)
ORDER BY ord;

-- name: replay_claim_records
-- Mark the records of the located dead letters as claimed.
UPDATE operation_records SET state = 'claimed', text = NULL, settled_at = NULL
WHERE rowid IN (SELECT record FROM located);

-- name: replay_doubtful_ahead
-- Pending records that may already be on this topic, for one probe of all of them.
SELECT records.message_id,
       least(dead_letters.accepted_at, coalesce(bodies.timestamp_ms / 1000, dead_letters.accepted_at)) AS since
FROM operation_records AS records JOIN dead_letters USING (message_id)
LEFT JOIN dead_letter_bodies AS bodies USING (message_id)
WHERE records.operation_id = $operation AND records.state = 'pending' AND records.not_before <= $now
  AND dead_letters.topic = $topic AND dead_letters.state = 'dead'
ORDER BY records.ord LIMIT $count;

-- name: replay_topics
-- The topics of an operation's open records, that of the first pending record first, with the totals of the pending ones:
-- their number, their bytes, the size of the largest, and the highest requested partition.
SELECT topic, count(*) FILTER (pending) AS records, coalesce(sum(size) FILTER (pending), 0)::BIGINT AS bytes,
       max(size) FILTER (pending) AS largest, max(partition) FILTER (pending) AS highest_partition
FROM (SELECT dead_letters.topic, records.ord, records.state = 'pending' AS pending, dead_letters.partition,
             CASE WHEN records.revision IS NOT NULL THEN records.size
                  ELSE coalesce(dead_letters.value_size, 0) + coalesce(octet_length(dead_letters.key), 0) END AS size
      FROM operation_records AS records JOIN dead_letters USING (message_id)
      WHERE records.operation_id = $operation AND records.state IN ('pending', 'claimed'))
GROUP BY topic ORDER BY min(ord) FILTER (pending), topic;

-- name: replay_begin
-- Set the delivery guarantee of an operation. Its first runner decides.
UPDATE operations SET delivery = coalesce(delivery, $delivery) WHERE operation_id = $operation;

-- name: replay_floors
-- Record, per topic and partition, the offset above which all unsettled records of this operation are.
UPDATE operations SET floors = $floors WHERE operation_id = $operation;

-- name: replay_say
-- Record the latest status of a running operation.
UPDATE operations SET message = $message WHERE operation_id = $operation AND state IN ('planned', 'running', 'checking');

-- name: replay_doubtful
-- Records of an operation for which it is unknown whether they are on their topic.
SELECT records.message_id, dead_letters.topic, dead_letters.verdict,
       coalesce(records.text, dead_letters.verdict_reason) AS text
FROM operation_records AS records JOIN dead_letters USING (message_id)
WHERE records.operation_id = $operation AND records.state IN ('failed', 'skipped') AND dead_letters.state = 'dead'
  AND dead_letters.verdict IN ('possibly_persisted', 'inconclusive')
ORDER BY records.ord LIMIT coalesce($limit, 1000);

-- name: replay_letter_states
-- The present states of these dead letters, so that an earlier archiving takes precedence.
SELECT message_id, state FROM dead_letters WHERE message_id IN (SELECT unnest($ids::VARCHAR[]));

-- name: replay_orphans
-- Records that a dead owner left claimed, with the time of the claim.
SELECT records.message_id, dead_letters.state_at AS claimed_at
FROM operation_records AS records JOIN dead_letters USING (message_id)
WHERE records.operation_id = $operation AND records.state = 'claimed' AND dead_letters.state = 'replaying'
  AND dead_letters.operation_id = $operation
ORDER BY records.ord;

-- name: replay_settle_records
-- Write the outcomes of the located records; a record that is pending again has no text.
UPDATE operation_records
SET state = located.outcome, text = CASE WHEN located.outcome <> 'pending' THEN located.text END,
    settled_at = CASE WHEN located.outcome <> 'pending' THEN $now END
FROM located WHERE operation_records.rowid = located.record;

-- name: replay_claim_dead_letters
-- Mark the located dead letters as claimed by a replay.
UPDATE dead_letters SET state = 'replaying', operation_id = $operation, state_at = $now
WHERE rowid IN (SELECT dead_letter FROM located);

-- name: replay_settle_dead_letters
-- Record the outcomes of claimed dead letters: their state, where they landed, and the replay count of failed ones.
UPDATE dead_letters
SET state = CASE settled.outcome WHEN 'acknowledged' THEN 'replayed' WHEN 'landed' THEN 'landed' ELSE 'dead' END,
    landed_partition = settled.landed_partition, landed_offset = settled.landed_offset, state_at = $now,
    replay_count = replay_count + (settled.outcome = 'failed')::INTEGER,
    quarantined = quarantined OR settled.outcome = 'failed' AND replay_count + 1 >= $quarantine_after,
    verdict = coalesce(settled.verdict, dead_letters.verdict),
    verdict_reason = CASE WHEN settled.verdict IS NOT NULL AND settled.text IS NOT NULL THEN settled.text
                          ELSE dead_letters.verdict_reason END
FROM settled WHERE dead_letters.rowid = settled.dead_letter;

-- name: replay_wave_records
-- The number of an operation's pending records numbered $first to $last, their bytes, the number in its order of the last
-- one, and of the first one that must be claimed alone: an earlier attempt may have arrived, or the record has a text or
-- a revision.
SELECT count(*) AS count, coalesce(sum(size), 0)::BIGINT AS bytes, max(ord) AS last,
       min(ord) FILTER (not_before IS NOT NULL OR text IS NOT NULL OR revision IS NOT NULL) AS other
FROM operation_records
WHERE operation_id = $operation AND state = 'pending' AND ord BETWEEN $first AND $last;

-- name: replay_alone_by_plan
-- Of an operation's pending records numbered $first to $last, the first one that must be claimed alone because an earlier
-- attempt may have arrived, or because it has a text or a revision; and the last one before more than $between others. NULL without one.
SELECT min(ord) AS first, min(ord) FILTER (next IS NULL OR next - ord > $between) AS last
FROM (SELECT ord, lead(ord) OVER (ORDER BY ord) AS next FROM operation_records
      WHERE operation_id = $operation AND state = 'pending' AND ord BETWEEN $first AND $last
        AND (not_before IS NOT NULL OR text IS NOT NULL OR revision IS NOT NULL));

-- name: replay_claimed_alone
-- The same, and also records whose dead letter cannot be claimed any more, is doubtful by now, or has no body.
WITH alone AS (
    SELECT ord, lead(ord) OVER (ORDER BY ord) AS next
    FROM operation_records AS records
    LEFT JOIN (SELECT message_id FROM dead_letters WHERE replayable AND state = 'dead' AND list_contains($safe, verdict))
        AS dead_letters USING (message_id)
    LEFT JOIN dead_letter_bodies AS bodies USING (message_id)
    WHERE operation_id = $operation AND records.state = 'pending' AND ord BETWEEN $first AND $last
      AND (not_before IS NOT NULL OR text IS NOT NULL OR revision IS NOT NULL
           OR dead_letters.message_id IS NULL OR bodies.message_id IS NULL))
SELECT min(ord) AS first, min(ord) FILTER (next IS NULL OR next - ord > $between) AS last FROM alone;

-- name: replay_wave_fitting
-- How many of the pending records numbered $first to $last fit into $max_bytes, and the number of the last one. With
-- $allow_oversized the first record fits alone, whatever its size.
SELECT count(*) AS count, max(ord) AS last
FROM (SELECT ord, row_number() OVER (ORDER BY ord) AS place, sum(coalesce(size, 0)) OVER (ORDER BY ord) AS total
      FROM operation_records
      WHERE operation_id = $operation AND state = 'pending' AND ord BETWEEN $first AND $last)
WHERE total <= $max_bytes OR (place = 1 AND $allow_oversized);

-- name: replay_next_pending
-- The number of an operation's first pending record from $first on; NULL without one.
SELECT min(ord) AS first FROM operation_records
WHERE operation_id = $operation AND state = 'pending' AND ord >= $first;

-- name: replay_locate_batch_records
-- Find the claimed records of an acknowledged batch. $first and $last, the range of its `ord`, limit the scan; the numbers
-- from $wave_first to $wave_last are those of open waves, whose records are claimed although they are pending.
CREATE OR REPLACE TEMP TABLE located AS
SELECT batch.message_id, batch.dead_letter AS claimed_as, batch.landed_partition, batch.landed_offset,
       records.rowid AS record, records.state = 'pending' AS in_wave
FROM acknowledged_batch AS batch JOIN operation_records AS records ON records.ord = batch.ord
WHERE records.operation_id = $operation AND records.ord BETWEEN $first AND $last
  AND (records.state = 'claimed' OR records.state = 'pending' AND records.ord BETWEEN $wave_first AND $wave_last);

-- name: replay_locate_wave_batch
-- Find the dead letters of an acknowledged batch by their row ids at the claim, where these are still right.
CREATE OR REPLACE TEMP TABLE settled AS
SELECT batch.landed_partition, batch.landed_offset, batch.dead_letter
FROM acknowledged_batch AS batch JOIN dead_letters ON dead_letters.rowid = batch.dead_letter
WHERE dead_letters.message_id = batch.message_id AND dead_letters.state = 'dead';

-- name: replay_settle_wave_records
-- Record the outcome of all pending records in a range of an open wave.
UPDATE operation_records SET state = 'acknowledged', settled_at = $now
WHERE operation_id = $operation AND state = 'pending' AND ord BETWEEN $first AND $last;

-- name: replay_locate_batch_dead_letters
-- Find the dead letters of the located records by their row ids at the claim, where these are still right.
CREATE OR REPLACE TEMP TABLE settled AS
SELECT located.message_id, located.landed_partition, located.landed_offset, dead_letters.rowid AS dead_letter
FROM located JOIN dead_letters ON dead_letters.rowid = located.claimed_as
WHERE dead_letters.message_id = located.message_id
  AND (located.in_wave AND dead_letters.state = 'dead'
       OR NOT located.in_wave AND dead_letters.state = 'replaying' AND dead_letters.operation_id = $operation);

-- name: replay_locate_moved_dead_letters
-- Find them by their message ids, after another change has moved rows.
CREATE OR REPLACE TEMP TABLE settled AS
SELECT located.message_id, located.landed_partition, located.landed_offset, dead_letters.rowid AS dead_letter
FROM located JOIN dead_letters USING (message_id)
WHERE located.in_wave AND dead_letters.state = 'dead'
   OR NOT located.in_wave AND dead_letters.state = 'replaying' AND dead_letters.operation_id = $operation;

-- name: replay_settle_batch_dead_letters
-- Record where the dead letters of an acknowledged batch landed.
UPDATE dead_letters
SET state = 'replayed', landed_partition = settled.landed_partition, landed_offset = settled.landed_offset,
    operation_id = $operation, state_at = $now
FROM settled WHERE dead_letters.rowid = settled.dead_letter;

-- name: replay_settle_batch_records
-- Record the outcome of the located records of an acknowledged batch. Their text is NULL since the claim or before it.
UPDATE operation_records SET state = 'acknowledged', settled_at = $now
WHERE rowid IN (SELECT record FROM located);

-- name: replay_wave_members
-- Find the records of an operation's open waves.
CREATE OR REPLACE TEMP TABLE wave_members AS
SELECT records.rowid AS record, records.message_id, waves.claimed_at
FROM operation_records AS records JOIN replay_waves AS waves
     ON records.operation_id = waves.operation_id AND records.ord BETWEEN waves.first_ord AND waves.last_ord
WHERE waves.operation_id = $operation AND records.state = 'pending';

-- name: replay_wave_dead_letters
-- Find the dead letters of these records.
CREATE OR REPLACE TEMP TABLE wave_dead_letters AS
SELECT members.record, members.claimed_at, dead_letters.rowid AS dead_letter
FROM wave_members AS members JOIN dead_letters USING (message_id) WHERE dead_letters.state = 'dead';

-- name: replay_claim_wave_dead_letters
-- Mark these dead letters as claimed at the time of their wave.
UPDATE dead_letters SET state = 'replaying', operation_id = $operation, state_at = wave_dead_letters.claimed_at
FROM wave_dead_letters WHERE dead_letters.rowid = wave_dead_letters.dead_letter;

-- name: replay_claim_wave_records
-- Mark their records as claimed.
UPDATE operation_records SET state = 'claimed' WHERE rowid IN (SELECT record FROM wave_dead_letters);

-- name: replay_wave_ids
-- Those of these dead letters that are in an open wave of any replay.
SELECT records.message_id
FROM operation_records AS records JOIN replay_waves AS waves
     ON records.operation_id = waves.operation_id AND records.ord BETWEEN waves.first_ord AND waves.last_ord
WHERE records.state = 'pending' AND records.message_id IN (SELECT unnest($ids::VARCHAR[]));

-- name: replay_count
-- Add to an operation's outcome counts.
UPDATE operations
SET acknowledged = acknowledged + $acknowledged, landed = landed + $landed,
    failed_again = failed_again + $failed, skipped = skipped + $skipped
WHERE operation_id = $operation;

-- name: replay_open_records
-- The number of an operation's records without an outcome.
SELECT count(*) AS open FROM operation_records
WHERE operation_id = $operation AND state IN ('pending', 'claimed');

-- name: replay_skip_gone
-- Skip unsent records whose dead letters are no longer dead, each with the state that it has now.
UPDATE operation_records SET state = 'skipped', text = found.text, settled_at = $now
FROM (
    SELECT records.message_id, reasons.text
    FROM operation_records AS records LEFT JOIN dead_letters USING (message_id)
    JOIN (SELECT unnest($states::VARCHAR[]) AS state, unnest($texts::VARCHAR[]) AS text) AS reasons
        ON reasons.state = coalesce(dead_letters.state, '')
    WHERE records.operation_id = $operation AND records.state = 'pending'
      AND dead_letters.operation_id IS DISTINCT FROM $operation
) AS found
WHERE operation_records.operation_id = $operation AND operation_records.state = 'pending'
  AND operation_records.message_id = found.message_id;

-- name: replay_skip_rest
-- Skip the unsent records of an operation that was cancelled or stopped itself.
UPDATE operation_records SET state = 'skipped', text = coalesce(text, $text), settled_at = $now
WHERE operation_id = $operation AND state = 'pending';

-- name: replay_abandon_records
-- Release the records that a dead runner of a vanished cluster had claimed.
UPDATE operation_records SET state = 'pending', text = $text
WHERE operation_id = $operation AND state = 'claimed';

-- name: replay_reasons
-- Reasons of failed and skipped records, the most frequent first.
SELECT state, text, count(*) AS count FROM operation_records
WHERE operation_id = $operation AND state IN ('failed', 'skipped')
GROUP BY state, text ORDER BY count DESC, text;

-- name: replay_end
-- End an operation with its summary and release the lease.
UPDATE operations
SET state = $state, finished_at = $now, message = $message, owner = NULL, lease_until = NULL
WHERE operation_id = $operation;

-- name: replay_settings
-- Change a plan before it starts; NULL keeps a value. The start time is that of the start, not of the check.
UPDATE operations
SET started_at = NULL, go_at_once = FALSE, newer = coalesce($newer, newer),
    inconclusive = coalesce($inconclusive, inconclusive), rate = coalesce($rate, rate), canary = coalesce($canary, canary),
    stop_percent = coalesce($stop_percent, stop_percent), stop_last = coalesce($stop_last, stop_last),
    checked_at = CASE WHEN checked_at > $stale THEN checked_at END  -- an old check is repeated
WHERE operation_id = $operation AND state = 'ready';

-- name: replay_rate
-- Set the rate for the rest of a paused operation.
UPDATE operations SET rate = $rate::DOUBLE WHERE operation_id = $operation AND state = 'paused';

-- name: replay_live
-- Replays that have not ended; `cluster` restricts to an id, `operations` to a list of ids.
SELECT * FROM operations
WHERE state IN ('checking', 'ready', 'planned', 'running', 'paused')
  AND ($cluster IS NULL OR cluster_id = $cluster)
  AND ($operations IS NULL OR list_contains($operations::VARCHAR[], operation_id))
ORDER BY created_at;

-- name: operations_of_application
-- The ids of the replays whose selection names an application (`named`, as JSON), or that have a record of it.
SELECT operation_id FROM operations WHERE contains(selection, $named)
UNION
SELECT records.operation_id
FROM operation_records AS records JOIN dead_letters USING (message_id) WHERE dead_letters.application = $name;

-- name: replay_course
-- The outcomes of a replay by window of `bucket` seconds since a time: records sent or found on their topic, and records
-- that failed again.
SELECT greatest(floor((settled_at - $since) / $bucket), 0)::BIGINT AS place,
       count(*) FILTER (state IN ('acknowledged', 'landed'))::BIGINT AS succeeded,
       count(*) FILTER (state = 'failed')::BIGINT AS failed
FROM operation_records
WHERE operation_id = $operation AND state IN ('acknowledged', 'landed', 'failed') AND settled_at IS NOT NULL
GROUP BY place ORDER BY place;

-- name: replay_pace
-- The number of an operation's records settled since a time, by being sent or found.
SELECT count(*) AS settled FROM operation_records
WHERE operation_id = $operation AND state IN ('acknowledged', 'landed', 'failed') AND settled_at >= $since;

-- name: replay_still_dead
-- Records that an ended operation left as dead letters, by outcome: their number, and the first of them.
SELECT records.state, count(*) AS count, list(records.message_id ORDER BY records.ord)[:coalesce($limit, 50)] AS ids
FROM operation_records AS records JOIN dead_letters USING (message_id)
WHERE records.operation_id = $operation AND records.state IN ('failed', 'skipped') AND dead_letters.state = 'dead'
GROUP BY records.state ORDER BY records.state;

-- name: replay_owner
-- The process that owns or owned an operation.
SELECT producer_id, client_id, host, pid, seen_at, closed_at FROM producers WHERE producer_id = $producer;

-- name: replay_audit
-- Operators' actions on one replay and on dead letters of it, the latest first.
SELECT acted_at, who, origin, host, action, selection, count, outcome FROM audit
WHERE contains(outcome, $operation) ORDER BY acted_at DESC, rowid DESC LIMIT coalesce($limit, 100);

-- name: replay_acts
-- Operators' actions on replays and on their requests, the latest first; the end of a replay is not one.
SELECT acted_at, who, origin, host, action, selection, count, outcome FROM audit
WHERE (action LIKE 'replay%' AND action <> 'replay_end' OR action LIKE 'request%') ORDER BY acted_at DESC, rowid DESC LIMIT coalesce($limit, 20);

-- name: replay_orphaned_waves
-- Operations with an open wave, whose runner is gone.
SELECT DISTINCT operation_id FROM replay_waves JOIN operations USING (operation_id)
WHERE owner IS NULL OR coalesce(lease_until, 0) < $now;

-- name: replay_ending
-- Cancelled replays that have not ended, because records may still be in flight.
SELECT operation_id FROM operations WHERE state = 'cancelled' AND finished_at IS NULL ORDER BY created_at;

-- name: replay_undecided
--- Replays that wait for a decision since before $since and that no runner holds, without an open request.
SELECT operation_id FROM operations
WHERE state = 'ready' AND coalesce(checked_at, created_at) < $since
  AND operation_id NOT IN (
      SELECT operation_id FROM replay_requests WHERE state IN ('pending', 'approved') AND expires_at > $now)
  AND (owner IS NULL OR coalesce(lease_until, 0) < $now) ORDER BY created_at;

-- name: replay_claimed
-- The number of claimed records without an outcome, and the time of the latest claim.
SELECT count(*) AS claimed, max(dead_letters.state_at) AS since
FROM operation_records AS records LEFT JOIN dead_letters USING (message_id)
WHERE records.operation_id = $operation AND records.state = 'claimed';

-- name: replay_unsuitable
-- Of an operation's pending records of a topic, those that request a partition from $partitions on, and those that are
-- larger than $max_size. An unknown limit is NULL.
SELECT count(*) FILTER (coalesce(partition, 0) >= $partitions) AS lost,
       count(*) FILTER (size > $max_size) AS too_large
FROM (SELECT CASE WHEN records.revision IS NOT NULL THEN records.size
                  ELSE coalesce(dead_letters.value_size, 0) + coalesce(octet_length(dead_letters.key), 0) END AS size,
             dead_letters.partition
      FROM operation_records AS records JOIN dead_letters USING (message_id)
      WHERE records.operation_id = $operation AND records.state = 'pending' AND dead_letters.topic = $topic);

-- name: replay_listed
-- A slice of an operation's pending records of a topic, for the check before the start.
SELECT records.ord, records.message_id, dead_letters.topic, dead_letters.partition, dead_letters.key,
       CASE WHEN records.revision IS NOT NULL THEN records.size - coalesce(octet_length(dead_letters.key), 0)
            ELSE dead_letters.value_size END AS value_size, dead_letters.accepted_at, dead_letters.failed_at
FROM operation_records AS records JOIN dead_letters USING (message_id)
WHERE records.operation_id = $operation AND records.state = 'pending' AND records.ord > $after
  AND dead_letters.topic = $topic
ORDER BY records.ord LIMIT $count;

-- name: replay_flag
-- Record the findings of the check for single records.
UPDATE operation_records SET flag = given.flag
FROM (SELECT unnest($ids::VARCHAR[]) AS message_id, unnest($flags::VARCHAR[]) AS flag) AS given
WHERE operation_records.operation_id = $operation AND operation_records.message_id = given.message_id
  AND operation_records.state = 'pending';

-- name: replay_checked
-- Record the end of the check. The operation then waits for an operator, unless it may start by itself.
UPDATE operations
SET checked = $checked, checked_at = $now, message = $message,
    state = CASE WHEN state <> 'checking' THEN state WHEN $goes::BOOLEAN THEN 'planned' ELSE 'ready' END
WHERE operation_id = $operation;

-- name: replay_look_again
-- Repeat the check of an operation that starts by itself, after a wait so long that its result may be outdated.
UPDATE operations SET state = 'checking', started_at = NULL, checked_at = NULL
WHERE operation_id = $operation AND owner = $owner AND state IN ('planned', 'running');

-- name: replay_skip_flagged
-- Skip records that would fail again, or would overwrite newer ones, each with its reason.
UPDATE operation_records SET state = 'skipped', text = $text, settled_at = $now
WHERE operation_id = $operation AND state = 'pending' AND flag = $flag
  AND ($topics IS NULL OR message_id IN (SELECT message_id FROM dead_letters WHERE list_contains($topics::VARCHAR[], topic)));

-- name: replay_times
-- When replays ran within a range, latest first; a replay that is still running ends now. One that is paused, or whose
-- runner has died, is left out.
SELECT operation_id, started_at, coalesce(finished_at, $now)::DOUBLE AS ended_at
FROM operations
WHERE started_at < $until AND coalesce(finished_at, $now) >= $since
  AND (finished_at IS NOT NULL OR (state = 'running' AND lease_until > $now))
  AND ($cluster IS NULL OR cluster_id = $cluster)
ORDER BY started_at DESC, operation_id LIMIT $most;
