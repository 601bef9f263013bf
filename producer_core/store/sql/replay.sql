-- Replays as durable operations. Everything a runner changes is compare-and-set inside one write transaction:
-- an operation by its owner, a record by its state, a letter by its state and its operation.

-- name: replay_same
-- The replay of this selection that has not ended yet, if there is one.
SELECT * FROM operations
WHERE selection = $selection AND state IN ('planned', 'running', 'paused')
ORDER BY created_at;

-- name: replay_insert
-- A new operation, before its records are frozen.
INSERT INTO operations BY NAME
SELECT $operation_id AS operation_id, $cluster AS cluster_id, $selection AS selection, 'planned' AS state,
       $who AS who, $origin AS origin, $now AS created_at, 0 AS total, 0 AS acknowledged, 0 AS landed,
       0 AS failed_again, 0 AS skipped, $rate::DOUBLE AS rate;

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
-- Operations of a cluster that wait for a runner or had one: planned, running, or paused or cancelled and still held.
SELECT operation_id, owner, lease_until FROM operations
WHERE cluster_id IN ('', $cluster) AND ($operation IS NULL OR operation_id = $operation)
  AND (state IN ('planned', 'running') OR state IN ('paused', 'cancelled') AND owner IS NOT NULL)
ORDER BY created_at;

-- name: replay_take
-- Takes an operation that nobody holds or whose owner died; no row changed: somebody was first, or it lives.
UPDATE operations
SET owner = $owner, lease_until = $now + $lease, started_at = coalesce(started_at, $now), message = NULL,
    state = CASE WHEN state = 'planned' THEN 'running' ELSE state END
WHERE operation_id = $operation AND owner IS NOT DISTINCT FROM $seen_owner
  AND lease_until IS NOT DISTINCT FROM $seen_until
  AND (state IN ('planned', 'running') OR state IN ('paused', 'cancelled') AND owner IS NOT NULL);

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

-- name: replay_next
-- The next records that nobody has claimed, in their order.
SELECT message_id FROM operation_records
WHERE operation_id = $operation AND state = 'pending' ORDER BY ord LIMIT $count;

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

-- name: replay_records
-- Moves records from one state to others, each with its text; returns what changed.
UPDATE operation_records SET state = given.state, text = given.text
FROM (SELECT unnest($ids::VARCHAR[]) AS message_id, unnest($states::VARCHAR[]) AS state,
             unnest($texts::VARCHAR[]) AS text) AS given
WHERE operation_records.operation_id = $operation AND operation_records.message_id = given.message_id
  AND operation_records.state = $before
RETURNING operation_records.message_id, operation_records.state;

-- name: replay_claim_letters
-- Marks the letters of claimed records; only those that are dead.
UPDATE dead_letters SET state = 'replaying', operation_id = $operation, state_at = $now
WHERE state = 'dead' AND message_id IN (SELECT unnest($ids::VARCHAR[]));

-- name: replay_settle_letters
-- What became of claimed letters: their state, where they landed, and their replays counted where they failed.
UPDATE dead_letters
SET state = given.state, landed_partition = given.landed_partition, landed_offset = given.landed_offset,
    replay_count = replay_count + given.failed, state_at = $now,
    verdict = coalesce(given.verdict, dead_letters.verdict),
    verdict_reason = coalesce(given.reason, dead_letters.verdict_reason)
FROM (SELECT unnest($ids::VARCHAR[]) AS message_id, unnest($states::VARCHAR[]) AS state,
             unnest($partitions::INTEGER[]) AS landed_partition, unnest($offsets::BIGINT[]) AS landed_offset,
             unnest($failed::INTEGER[]) AS failed, unnest($verdicts::VARCHAR[]) AS verdict,
             unnest($reasons::VARCHAR[]) AS reason) AS given
WHERE dead_letters.message_id = given.message_id AND dead_letters.state = 'replaying'
  AND dead_letters.operation_id = $operation;

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

-- name: replay_skip_rest
-- Ends a cancelled operation's records that were never sent.
UPDATE operation_records SET state = 'skipped', text = coalesce(text, $text)
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
