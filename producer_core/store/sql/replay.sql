-- Replays as durable operations. Everything a runner changes is compare-and-set inside one write transaction:
-- an operation by its owner, a record by its state, a letter by its state and its operation.

-- name: replay_same
-- The replay of this selection that has not ended yet, if there is one.
SELECT * FROM operations
WHERE selection = $selection AND state IN ('checking', 'ready', 'planned', 'running', 'paused')
ORDER BY created_at;

-- name: replay_insert
-- A new operation, before its records are frozen.
INSERT INTO operations BY NAME
SELECT $operation_id AS operation_id, $cluster AS cluster_id, $selection AS selection, $state AS state,
       $who AS who, $origin AS origin, $now AS created_at, 0 AS total, 0 AS acknowledged, 0 AS landed,
       0 AS failed_again, 0 AS skipped, $rate::DOUBLE AS rate, $canary::BIGINT AS canary,
       $stop_percent::DOUBLE AS stop_percent, $stop_last::BIGINT AS stop_last, $newer AS newer,
       $inconclusive AS inconclusive, $go_at_once AS go_at_once, $reason AS reason;

-- name: replay_planned
-- Sets the totals of a new operation from its frozen records.
UPDATE operations SET total = frozen.total, skipped = frozen.skipped
FROM (SELECT count(*) AS total, count(*) FILTER (WHERE state = 'skipped') AS skipped
      FROM operation_records WHERE operation_id = $operation) AS frozen
WHERE operation_id = $operation;

-- name: replay_runners
-- Live processes that run replays, the last heard of first.
SELECT producer_id, cluster_id FROM producers
WHERE runs_replays AND closed_at IS NULL AND seen_at > $alive_since
ORDER BY seen_at DESC;

-- name: replay_candidates
-- Operations of a cluster that wait for a runner or had one; a cancelled one until its last record is settled.
-- Those that a Spark job planned are carried out by Spark jobs only, and no others are.
SELECT operation_id, owner, lease_until, state = 'checking' AS checking FROM operations
WHERE cluster_id IN ('', $cluster) AND ($operation IS NULL OR operation_id = $operation)
  AND (origin = 'pipeline') = $by_spark
  AND (state IN ('checking', 'planned', 'running') OR state = 'paused' AND owner IS NOT NULL
       OR state = 'cancelled' AND finished_at IS NULL)
ORDER BY created_at;

-- name: replay_take
-- Takes an operation that nobody holds or whose owner died; no row changed: somebody was first, or it lives.
-- It starts when its first runner has it to send; a look ahead, and a person who thinks about it, come before.
UPDATE operations
SET owner = $owner, lease_until = $now + $lease, message = NULL,
    started_at = CASE WHEN state IN ('planned', 'running') THEN coalesce(started_at, $now) ELSE started_at END,
    state = CASE WHEN state = 'planned' THEN 'running' ELSE state END
WHERE operation_id = $operation AND owner IS NOT DISTINCT FROM $seen_owner
  AND lease_until IS NOT DISTINCT FROM $seen_until
  AND (state IN ('checking', 'planned', 'running') OR state = 'paused' AND owner IS NOT NULL
       OR state = 'cancelled' AND finished_at IS NULL);

-- name: replay_renew
-- Renews the lease; no row changed: it was lost to another process, or the operation has ended.
UPDATE operations SET lease_until = $now + $lease WHERE operation_id = $operation AND owner = $owner;

-- name: replay_let_go
-- Gives the lease back; the operation stays as it is for the next runner.
UPDATE operations SET owner = NULL, lease_until = NULL WHERE operation_id = $operation AND owner = $owner;

-- name: replay_switch
-- Moves an operation from the states it may be in to another one; no row changed: it was in none of them.
UPDATE operations SET state = $state, message = $message
WHERE operation_id = $operation AND list_contains($allowed, state);

-- name: replay_wave
-- The next records that nobody has claimed, in their order: as many bytes as there is room for (one that is larger than
-- all the room goes alone), and before the first of which an old attempt may arrive later than that moment.
WITH next AS (
    SELECT rowid AS record, ord, message_id, coalesce(size, 0) AS size, not_before FROM operation_records
    WHERE operation_id = $operation AND state = 'pending' ORDER BY ord LIMIT $count),
summed AS (SELECT *, sum(size) OVER (ORDER BY ord) AS total, min(ord) OVER () AS first FROM next)
SELECT record, ord, message_id FROM summed
WHERE ord < (
    SELECT coalesce(min(ord), 9223372036854775807) FROM summed
    WHERE total > $room AND (ord > first OR NOT $alone) OR coalesce(not_before, 0) > $until)
ORDER BY ord;

-- name: replay_claim_records
-- Marks the records of the letters that were found as claimed.
UPDATE operation_records SET state = 'claimed', text = NULL, settled_at = NULL
WHERE rowid IN (SELECT record FROM placed);

-- name: replay_doubtful_ahead
-- Records still to come that may be on this topic already: what one look answers for all of them.
SELECT records.message_id, least(letters.accepted_at, coalesce(bodies.timestamp_ms / 1000, letters.accepted_at)) AS since
FROM operation_records AS records JOIN dead_letters AS letters USING (message_id)
LEFT JOIN dead_letter_bodies AS bodies USING (message_id)
WHERE records.operation_id = $operation AND records.state = 'pending' AND records.not_before <= $now
  AND letters.topic = $topic AND letters.state = 'dead'
ORDER BY records.ord LIMIT $count;

-- name: replay_topics
-- The topics of an operation's open records.
SELECT DISTINCT letters.topic FROM operation_records AS records JOIN dead_letters AS letters USING (message_id)
WHERE records.operation_id = $operation AND records.state IN ('pending', 'claimed') ORDER BY letters.topic;

-- name: replay_begin
-- How the operation is delivered, decided once, by its first runner.
UPDATE operations SET delivery = coalesce(delivery, $delivery) WHERE operation_id = $operation;

-- name: replay_floors
-- The offsets by topic and partition at or below which nothing lies that this operation sent and has not settled.
UPDATE operations SET floors = $floors WHERE operation_id = $operation;

-- name: replay_say
-- The last thing worth saying of an operation under way.
UPDATE operations SET message = $message WHERE operation_id = $operation AND state IN ('planned', 'running', 'checking');

-- name: replay_doubtful
-- Records of an operation of which nobody can say whether they are on their topic.
SELECT records.message_id, letters.topic, letters.verdict, coalesce(records.text, letters.verdict_reason) AS text
FROM operation_records AS records JOIN dead_letters AS letters USING (message_id)
WHERE records.operation_id = $operation AND records.state IN ('failed', 'skipped') AND letters.state = 'dead'
  AND letters.verdict IN ('possibly_persisted', 'inconclusive')
ORDER BY records.ord LIMIT coalesce($limit, 1000);

-- name: replay_letter_states
-- Where these letters stand now, so that who archived one first wins.
SELECT message_id, state FROM dead_letters WHERE message_id IN (SELECT unnest($ids::VARCHAR[]));

-- name: replay_orphans
-- Records a dead owner left claimed, with when it claimed them.
SELECT records.message_id, letters.state_at AS claimed_at
FROM operation_records AS records JOIN dead_letters AS letters USING (message_id)
WHERE records.operation_id = $operation AND records.state = 'claimed' AND letters.state = 'replaying'
  AND letters.operation_id = $operation
ORDER BY records.ord;

-- name: replay_end_records
-- What became of the records that were found; one that is pending again has no text.
UPDATE operation_records
SET state = placed.ending, text = CASE WHEN placed.ending <> 'pending' THEN placed.text END,
    settled_at = CASE WHEN placed.ending <> 'pending' THEN $now END
FROM placed WHERE operation_records.rowid = placed.record;

-- name: replay_claim_letters
-- Marks the letters that were found as a replay's.
UPDATE dead_letters SET state = 'replaying', operation_id = $operation, state_at = $now
WHERE rowid IN (SELECT letter FROM placed);

-- name: replay_settle_letters
-- What became of claimed letters that were found: their state, where they landed, and their replays counted where they failed.
UPDATE dead_letters
SET state = CASE settled.ending WHEN 'acknowledged' THEN 'replayed' WHEN 'landed' THEN 'landed' ELSE 'dead' END,
    landed_partition = settled.landed_partition, landed_offset = settled.landed_offset, state_at = $now,
    replay_count = replay_count + (settled.ending = 'failed')::INTEGER,
    quarantined = quarantined OR settled.ending = 'failed' AND replay_count + 1 >= $quarantine_after,
    verdict = coalesce(settled.verdict, dead_letters.verdict),
    verdict_reason = CASE WHEN settled.verdict IS NOT NULL AND settled.text IS NOT NULL THEN settled.text
                          ELSE dead_letters.verdict_reason END
FROM settled WHERE dead_letters.rowid = settled.letter;

-- name: replay_count
-- Adds to an operation's outcomes.
UPDATE operations
SET acknowledged = acknowledged + $acknowledged, landed = landed + $landed,
    failed_again = failed_again + $failed, skipped = skipped + $skipped
WHERE operation_id = $operation;

-- name: replay_open_records
-- How many records of an operation have no outcome yet.
SELECT count(*) AS open FROM operation_records
WHERE operation_id = $operation AND state IN ('pending', 'claimed');

-- name: replay_skip_gone
-- Ends the records that were never sent and whose letters are not dead any more, each with what became of it elsewhere.
UPDATE operation_records SET state = 'skipped', text = found.text, settled_at = $now
FROM (
    SELECT records.message_id, told.text
    FROM operation_records AS records LEFT JOIN dead_letters AS letters USING (message_id)
    JOIN (SELECT unnest($states::VARCHAR[]) AS state, unnest($texts::VARCHAR[]) AS text) AS told
        ON told.state = coalesce(letters.state, '')
    WHERE records.operation_id = $operation AND records.state = 'pending'
      AND letters.operation_id IS DISTINCT FROM $operation
) AS found
WHERE operation_records.operation_id = $operation AND operation_records.state = 'pending'
  AND operation_records.message_id = found.message_id;

-- name: replay_skip_rest
-- Ends the records that were never sent, of an operation that was cancelled or stopped itself.
UPDATE operation_records SET state = 'skipped', text = coalesce(text, $text), settled_at = $now
WHERE operation_id = $operation AND state = 'pending';

-- name: replay_abandon_letters
-- Letters that a dead runner of a vanished cluster had claimed: nobody will ever know.
UPDATE dead_letters SET state = 'dead', verdict = 'inconclusive', verdict_reason = $reason, state_at = $now
WHERE state = 'replaying' AND operation_id = $operation;

-- name: replay_abandon_records
-- The records of such letters.
UPDATE operation_records SET state = 'pending', text = $text
WHERE operation_id = $operation AND state = 'claimed';

-- name: replay_reasons
-- Why records failed again or were skipped, the most frequent reason first.
SELECT state, text, count(*) AS count FROM operation_records
WHERE operation_id = $operation AND state IN ('failed', 'skipped')
GROUP BY state, text ORDER BY count DESC, text;

-- name: replay_end
-- The end of an operation, with its sentence; the lease is given back.
UPDATE operations
SET state = $state, finished_at = $now, message = $message, owner = NULL, lease_until = NULL
WHERE operation_id = $operation;

-- name: replay_settings
-- What an operator changes of a plan before it goes; NULL leaves it. It starts then, not when it was looked ahead.
UPDATE operations
SET started_at = NULL, go_at_once = FALSE, newer = coalesce($newer, newer),
    inconclusive = coalesce($inconclusive, inconclusive), rate = coalesce($rate, rate), canary = coalesce($canary, canary),
    stop_percent = coalesce($stop_percent, stop_percent), stop_last = coalesce($stop_last, stop_last),
    checked_at = CASE WHEN checked_at > $stale THEN checked_at END  -- what was seen long ago is looked at again
WHERE operation_id = $operation AND state = 'ready';

-- name: replay_rate
-- Another rate for what is left of a paused operation.
UPDATE operations SET rate = $rate::DOUBLE WHERE operation_id = $operation AND state = 'paused';

-- name: replay_live
-- Replays that have not ended.
SELECT * FROM operations WHERE state IN ('checking', 'ready', 'planned', 'running', 'paused') ORDER BY created_at;

-- name: replay_pace
-- How many records of an operation got an outcome since then, by being sent or found.
SELECT count(*) AS settled FROM operation_records
WHERE operation_id = $operation AND state IN ('acknowledged', 'landed', 'failed') AND settled_at >= $since;

-- name: replay_still_dead
-- Records that an ended operation left dead letters, by what it did with them; how many, and the first of them.
SELECT records.state, count(*) AS count, list(records.message_id ORDER BY records.ord)[:coalesce($limit, 50)] AS ids
FROM operation_records AS records JOIN dead_letters AS letters USING (message_id)
WHERE records.operation_id = $operation AND records.state IN ('failed', 'skipped') AND letters.state = 'dead'
GROUP BY records.state ORDER BY records.state;

-- name: replay_owner
-- The process that has or had an operation.
SELECT producer_id, client_id, host, pid, seen_at, closed_at FROM producers WHERE producer_id = $producer;

-- name: replay_audit
-- What people did with one replay, and with letters that it meant, the latest first.
SELECT acted_at, who, origin, host, action, selection, count, outcome FROM audit
WHERE contains(outcome, $operation) ORDER BY acted_at DESC, rowid DESC LIMIT coalesce($limit, 100);

-- name: replay_acts
-- What people did with replays, the latest first; a replay's own end is not an act.
SELECT acted_at, who, origin, host, action, selection, count, outcome FROM audit
WHERE action LIKE 'replay%' AND action <> 'replay_end' ORDER BY acted_at DESC, rowid DESC LIMIT coalesce($limit, 20);

-- name: replay_ending
-- Replays that were cancelled and have not ended, because something of them may be on its way.
SELECT operation_id FROM operations WHERE state = 'cancelled' AND finished_at IS NULL ORDER BY created_at;

-- name: replay_claimed
-- How many records of an operation were claimed and have no outcome, and when the last of them was.
SELECT count(*) AS claimed, max(letters.state_at) AS since
FROM operation_records AS records LEFT JOIN dead_letters AS letters USING (message_id)
WHERE records.operation_id = $operation AND records.state = 'claimed';

-- name: replay_listed
-- The records of an operation that are to be looked ahead for, a slice of them.
SELECT records.ord, records.message_id, letters.topic, letters.partition, letters.key, letters.value_size,
       letters.accepted_at, letters.failed_at
FROM operation_records AS records JOIN dead_letters AS letters USING (message_id)
WHERE records.operation_id = $operation AND records.state = 'pending' AND records.ord > $after
ORDER BY records.ord LIMIT $count;

-- name: replay_flag
-- What a look ahead found of single records.
UPDATE operation_records SET flag = given.flag
FROM (SELECT unnest($ids::VARCHAR[]) AS message_id, unnest($flags::VARCHAR[]) AS flag) AS given
WHERE operation_records.operation_id = $operation AND operation_records.message_id = given.message_id
  AND operation_records.state = 'pending';

-- name: replay_checked
-- The look ahead is done; who asked for it first decides now, unless it may go on by itself.
UPDATE operations
SET checked = $checked, checked_at = $now, message = $message,
    state = CASE WHEN state <> 'checking' THEN state WHEN $goes::BOOLEAN THEN 'planned' ELSE 'ready' END
WHERE operation_id = $operation;

-- name: replay_look_again
-- It went on by itself, and waited so long for its turn that what was seen may not hold any more.
UPDATE operations SET state = 'checking', started_at = NULL, checked_at = NULL
WHERE operation_id = $operation AND owner = $owner AND state IN ('planned', 'running');

-- name: replay_skip_flagged
-- Leaves out what would fail again, or would overwrite what is newer, each with its reason.
UPDATE operation_records SET state = 'skipped', text = $text, settled_at = $now
WHERE operation_id = $operation AND state = 'pending' AND flag = $flag
  AND ($topics IS NULL OR message_id IN (SELECT message_id FROM dead_letters WHERE list_contains($topics::VARCHAR[], topic)));
