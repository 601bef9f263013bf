-- Requests for the approval of replays, the policy that asks for them, and the admitted starts.

-- name: approval_policy
-- The policy that applies to this store; no row: no replay needs an approval.
SELECT path, digest, text, who, adopted_at FROM approval_policies ORDER BY rowid DESC LIMIT 1;

-- name: approval_policy_path
-- Whether a policy was ever adopted from this path.
SELECT count(*) AS count FROM approval_policies WHERE path = $path;

-- name: approval_policy_digest
-- Whether a policy with this text was ever adopted.
SELECT count(*) AS count FROM approval_policies WHERE digest = $digest;

-- name: approval_policy_adopt
-- Adopt a policy. Earlier ones stay as the history.
INSERT INTO approval_policies BY NAME
SELECT $now AS adopted_at, $path AS path, $digest AS digest, $text AS text, $who AS who, $host AS host;

-- name: approval_admit_running
-- Admit the replays that were started before the first policy of this store. A resume examines them again.
INSERT INTO replay_starts BY NAME
SELECT operation_id, $now AS started_at, who, '' AS person, 0 AS records, '' AS plan_hash, rate
FROM operations WHERE state IN ('planned', 'running');

-- name: approval_return_unadmitted
-- Return replays to a decision that a version without approvals started under a policy; no runner takes these.
UPDATE operations
SET state = CASE state WHEN 'planned' THEN 'ready' ELSE 'paused' END, message = $message
WHERE state IN ('planned', 'running') AND (owner IS NULL OR coalesce(lease_until, 0) < $now)
  AND EXISTS (SELECT 1 FROM approval_policies)
  AND operation_id NOT IN (SELECT operation_id FROM replay_starts);

-- name: approval_unadmitted
-- The number of these replays.
SELECT count(*) AS count FROM operations
WHERE state IN ('planned', 'running') AND (owner IS NULL OR coalesce(lease_until, 0) < $now)
  AND EXISTS (SELECT 1 FROM approval_policies)
  AND operation_id NOT IN (SELECT operation_id FROM replay_starts);

-- name: approval_parts
-- The frozen ids of an operation as hashes, 4,096 records a row, with the bytes of their keys and values.
SELECT ord // 4096 AS part, sha256(string_agg(message_id, chr(31) ORDER BY ord)) AS ids,
       coalesce(sum(size), 0)::BIGINT AS bytes
FROM operation_records WHERE operation_id = $operation GROUP BY part ORDER BY part;

-- name: approval_edits
-- The edits of an operation's dead letters that are not undone, by their numbers, as a hash; NULL without edits.
SELECT sha256(string_agg(concat(message_id, chr(31), number), chr(30) ORDER BY message_id, number)) AS edits
FROM dead_letter_revisions
WHERE undone_at IS NULL
  AND message_id IN (SELECT message_id FROM operation_records WHERE operation_id = $operation);

-- name: approval_version
-- A number that changes with the records of an operation, their dead letters and their edits; it needs no body.
SELECT concat_ws(' ', count(*), sum(hash(
           records.ord, records.message_id, records.state, records.revision, dead_letters.state, dead_letters.state_at,
           dead_letters.topic, dead_letters.cluster_id, dead_letters.partition, dead_letters.key, dead_letters.value_size,
           dead_letters.replayable, dead_letters.quarantined, dead_letters.verdict, dead_letters.failed_at,
           dead_letters.replay_count)),
       (SELECT concat_ws(' ', count(*), sum(hash(message_id, number, made_at, undone_at))) FROM dead_letter_revisions
        WHERE message_id IN (SELECT message_id FROM operation_records WHERE operation_id = $operation))) AS version
FROM operation_records AS records LEFT JOIN dead_letters USING (message_id)
WHERE records.operation_id = $operation;

-- name: approval_hashes
-- The dead letters of an operation with their bodies and edits as hashes, one row for each part from $first to $last. A join
-- with dead_letter_bodies by the id would read the values of all bodies.
WITH chosen AS MATERIALIZED (
    SELECT ord, message_id, state FROM operation_records
    WHERE operation_id = $operation AND ord >= $first * 4096 AND ord < ($last + 1) * 4096
), located AS MATERIALIZED (
    SELECT message_id, bodies.rowid AS body FROM chosen JOIN dead_letter_bodies AS bodies USING (message_id)
), contents AS (
    SELECT located.message_id, bodies.value, bodies.timestamp_ms, bodies.headers
    FROM located JOIN dead_letter_bodies AS bodies ON bodies.rowid = located.body
), edits AS (
    SELECT message_id, sha256(string_agg(concat(
               number, chr(31), coalesce(sha256(key), 'null'), chr(31), coalesce(sha256(value), 'null'), chr(31),
               sha256(headers)), chr(30) ORDER BY number)) AS edits
    FROM dead_letter_revisions
    WHERE undone_at IS NULL AND message_id IN (SELECT message_id FROM chosen)
    GROUP BY message_id
)
SELECT ord // 4096 AS part, sha256(string_agg(message_id, chr(31) ORDER BY ord)) AS ids,
       sha256(string_agg(content, '' ORDER BY ord)) AS contents,
       sha256(string_agg(edits, '' ORDER BY ord)) AS edits
FROM (
    SELECT chosen.ord, chosen.message_id, coalesce(edits.edits, '-') AS edits,
           sha256(concat(
               chosen.state, chr(31), coalesce(dead_letters.state, ''), chr(31), coalesce(dead_letters.topic, ''), chr(31),
               coalesce(dead_letters.cluster_id, ''), chr(31), coalesce(dead_letters.partition::VARCHAR, ''), chr(31),
               coalesce(dead_letters.replayable, FALSE), chr(31), coalesce(dead_letters.quarantined, FALSE), chr(31),
               coalesce(sha256(dead_letters.key), 'null'), chr(31), coalesce(sha256(contents.value), 'null'), chr(31),
               coalesce(contents.timestamp_ms::VARCHAR, ''), chr(31), sha256(coalesce(contents.headers, ''))
           )) AS content
    FROM chosen
    LEFT JOIN dead_letters USING (message_id)
    LEFT JOIN contents USING (message_id)
    LEFT JOIN edits USING (message_id))
GROUP BY part ORDER BY part;

-- name: approval_effect
-- The records that an operation still has to send, by topic, and how many come from another cluster than its destination.
SELECT dead_letters.topic, count(*) AS records,
       count(*) FILTER (dead_letters.cluster_id NOT IN ('', operations.cluster_id)) AS elsewhere
FROM operation_records AS records JOIN operations USING (operation_id) JOIN dead_letters USING (message_id)
WHERE records.operation_id = $operation AND records.state IN ('pending', 'claimed')
GROUP BY dead_letters.topic ORDER BY count(*) DESC, dead_letters.topic;

-- name: approval_requester
-- Who asked for a replay that starts by itself; no row for another replay, or from an earlier version.
SELECT identity FROM replay_requesters WHERE operation_id = $operation;

-- name: approval_keep_requester
-- Keep who asks for a replay that starts by itself.
INSERT INTO replay_requesters BY NAME SELECT $operation AS operation_id, $identity AS identity;

-- name: approval_start
-- Admit the start of a replay.
INSERT INTO replay_starts BY NAME
SELECT $operation AS operation_id, $now AS started_at, $who AS who, $person AS person, $records AS records,
       $request AS request_id, $plan_hash AS plan_hash, $rate::DOUBLE AS rate;

-- name: approval_started
-- The latest admitted start of a replay.
SELECT plan_hash, rate, request_id FROM replay_starts WHERE operation_id = $operation ORDER BY rowid DESC LIMIT 1;

-- name: approval_recent
-- The records of replays that this person started without an approval since a time.
SELECT coalesce(sum(records), 0)::BIGINT AS records FROM replay_starts
WHERE person = $person AND request_id IS NULL AND started_at > $since AND operation_id <> $operation;

-- name: approval_time
-- The latest time that this store knows of a request or a start, at most $skew seconds after now: a clock that was set back
-- does not go behind it, and the row of a host whose clock is ahead does not stop it.
SELECT greatest($now::DOUBLE, least($now::DOUBLE + $skew, greatest(
           coalesce((SELECT max(greatest(requested_at, coalesce(decided_at, 0), coalesce(closed_at, 0)))
                     FROM replay_requests), 0),
           coalesce((SELECT max(started_at) FROM replay_starts), 0)))) AS now;

-- name: request_insert
-- Insert a pending request.
INSERT INTO replay_requests BY NAME
SELECT $request AS request_id, $operation AS operation_id, 'pending' AS state, $cluster AS cluster_id, $records AS records,
       $rule AS rule, $effect AS effect, $plan_hash AS plan_hash, $content_hash AS content_hash, $rate::DOUBLE AS rate,
       $who AS who, $identity AS identity, $origin AS origin, $host AS host, $reason AS reason, $now AS requested_at,
       $expires AS expires_at;

-- name: request_decide
-- Approve or refuse a request; no row: another person was faster, or it is not pending any more.
UPDATE replay_requests
SET state = $state, decided_by = $who, decided_identity = $identity, decided_origin = $origin, decided_at = $now,
    decision = $reason
WHERE request_id = $request AND state = 'pending';

-- name: request_close
-- Close a request that is pending or approved: used, withdrawn, expired or void.
UPDATE replay_requests SET state = $state, closed_at = $now, closed_text = $text
WHERE request_id = $request AND state IN ('pending', 'approved');

-- name: requests
-- Requests, the latest first: all, of one state, of one replay, or one by its id or the beginning of its id.
SELECT * FROM replay_requests
WHERE ($state IS NULL OR state = $state) AND ($operation IS NULL OR operation_id = $operation)
  AND ($request IS NULL OR starts_with(request_id, $request))
ORDER BY rowid DESC LIMIT coalesce($limit, 100);

-- name: requests_open
-- Requests that are pending or approved, of one replay or of all.
SELECT * FROM replay_requests
WHERE state IN ('pending', 'approved') AND ($operation IS NULL OR operation_id = $operation)
ORDER BY rowid DESC;

-- name: requests_expired
-- Open requests whose time is over.
SELECT * FROM replay_requests WHERE state IN ('pending', 'approved') AND expires_at <= $now ORDER BY rowid;

-- name: alerts_requests
-- Pending requests of replays that wait for an approval, for the alert that tells approvers.
SELECT request_id, who, records, rule, expires_at FROM replay_requests
WHERE state = 'pending' AND expires_at > $now ORDER BY rowid;
