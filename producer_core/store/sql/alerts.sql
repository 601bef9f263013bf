-- name: alerts_list
-- Episodes, those still firing first, then the newest: all of them, or one state, or since a moment.
SELECT a.alert_id, a.rule, a.severity, a.subject, a.state, a.value, a.threshold, a.text, a.advice, a.started_at,
       a.changed_at, a.resolved_at, a.acknowledged_by, a.acknowledged_at,
       EXISTS (SELECT 1 FROM silences s
               WHERE s.rule = a.rule AND s.subject IN ('', a.subject) AND s.until > $now) AS silenced
FROM alerts a
WHERE ($state IS NULL OR a.state = $state) AND ($since IS NULL OR coalesce(a.resolved_at, $since) >= $since)
ORDER BY a.state = 'firing' DESC, a.started_at DESC
LIMIT $limit;

-- name: alerts_fire
-- Begins an episode, unless this rule is already firing for this subject: two watchers make one alert.
INSERT INTO alerts BY NAME
SELECT $alert_id AS alert_id, $rule AS rule, $severity AS severity, $subject AS subject, 'firing' AS state,
       $value AS value, $threshold AS threshold, $text AS text, $advice AS advice, $started_at AS started_at,
       $started_at AS changed_at
WHERE NOT EXISTS (SELECT 1 FROM alerts WHERE rule = $rule AND subject = $subject AND state = 'firing');

-- name: alerts_update
-- New words and numbers for an episode that goes on.
UPDATE alerts
SET severity = $severity, value = $value, threshold = $threshold, text = $text, advice = $advice, changed_at = $at
WHERE rule = $rule AND subject = $subject AND state = 'firing';

-- name: alerts_resolve
-- Ends an episode.
UPDATE alerts SET state = 'resolved', changed_at = $at, resolved_at = $at
WHERE rule = $rule AND subject = $subject AND state = 'firing';

-- name: alerts_acknowledge
-- Somebody has seen it; the first one stays.
UPDATE alerts SET acknowledged_by = $who, acknowledged_at = $now
WHERE alert_id = $alert_id AND acknowledged_by IS NULL;

-- name: alerts_silence
-- Keeps a rule quiet for a while, for one subject or (subject '') for all.
INSERT INTO silences BY NAME
SELECT $rule AS rule, $subject AS subject, $until AS until, $who AS who, $why AS why, $now AS created_at;

-- name: alerts_lease_holder
-- Who evaluates the store's own rules, while the lease lasts.
SELECT owner, lease_until FROM leases WHERE name = 'alerts' AND lease_until > $now;

-- name: alerts_gone_producers
-- Producers that stopped giving a sign of life without being closed.
SELECT producer_id, client_id, host, pid, pending, seen_at FROM producers
WHERE closed_at IS NULL AND seen_at < $silent_since AND seen_at > $forgotten
ORDER BY seen_at;
