-- name: alerts_list
-- Episodes, firing ones first, then the newest: all of them, or one state, or since a point in time. Those about producers
-- of another application or cluster are left out. A producer without an application counts the dead letters of all.
SELECT a.alert_id, a.rule, a.severity, a.subject, a.state, a.value, a.threshold, a.text, a.advice, a.started_at,
       a.changed_at, a.resolved_at, a.acknowledged_by, a.acknowledged_at, a.fired_at, a.since, a.told_by, a.muted_by,
       a.telling, a.telling_end,
       EXISTS (SELECT 1 FROM silences s
               WHERE s.rule = a.rule AND s.subject IN ('', a.subject) AND s.until > $now) AS silenced
FROM alerts a
WHERE ($state IS NULL OR a.state = $state) AND ($since IS NULL OR coalesce(a.resolved_at, $since) >= $since)
  AND NOT EXISTS (SELECT 1 FROM producers p
                  WHERE p.producer_id = a.subject
                    AND (p.application <> $application AND (p.application <> '' OR a.rule <> 'high_dlq_size')
                         OR p.cluster_id <> $cluster AND p.cluster_id <> ''))
ORDER BY a.state = 'firing' DESC, a.started_at DESC
LIMIT $limit;

-- name: alerts_known
-- Input of an evaluation: pending and firing episodes, and ended ones with notifications that may be due.
SELECT a.rule, a.severity, a.subject, a.state, a.value, a.threshold, a.text, a.advice, a.started_at, a.changed_at,
       a.resolved_at, a.acknowledged_by, a.acknowledged_at, a.fired_at, a.since, a.told_by, a.muted_by, a.telling,
       a.telling_end
FROM alerts a
WHERE a.state <> 'resolved' OR a.telling_end IS NULL
ORDER BY a.started_at;

-- name: alerts_fire
-- Start an episode, unless this rule is already firing for this subject: two watchers create one alert.
INSERT INTO alerts BY NAME
SELECT $alert_id AS alert_id, $rule AS rule, $severity AS severity, $subject AS subject, 'firing' AS state,
       $value AS value, $threshold AS threshold, $text AS text, $advice AS advice, $started_at AS started_at,
       $started_at AS changed_at, $started_at AS fired_at, $told_by AS told_by
WHERE NOT EXISTS (SELECT 1 FROM alerts WHERE rule = $rule AND subject = $subject AND state = 'firing');

-- name: alerts_begin
-- Start an episode of an evaluated rule, unless one is open.
INSERT INTO alerts BY NAME
SELECT $alert_id AS alert_id, $rule AS rule, $severity AS severity, $subject AS subject, $state AS state,
       $value AS value, $threshold AS threshold, $text AS text, $advice AS advice, $started_at AS started_at,
       $changed_at AS changed_at, $fired_at AS fired_at, $since AS since
WHERE NOT EXISTS (SELECT 1 FROM alerts WHERE rule = $rule AND subject = $subject AND state <> 'resolved');

-- name: alerts_step
-- Update an evaluated episode to its next state.
UPDATE alerts
SET state = $state, severity = $severity, value = $value, threshold = $threshold, text = $text, advice = $advice,
    changed_at = $changed_at, fired_at = $fired_at, since = $since, resolved_at = $resolved_at
WHERE alert_id = $alert_id AND state <> 'resolved';

-- name: alerts_drop
-- Delete a pending episode whose condition ended before it fired.
DELETE FROM alerts WHERE alert_id = $alert_id AND state = 'pending';

-- name: alerts_decide
-- Record whether an episode is notified, and the reason if it is not.
UPDATE alerts SET muted_by = $muted_by, telling = $telling, telling_end = $telling_end WHERE alert_id = $alert_id;

-- name: alerts_shift
-- Shift running times after a clock change of this many seconds.
UPDATE alerts SET since = since + $seconds WHERE since IS NOT NULL AND state <> 'resolved';

-- name: alerts_update
-- Update text and numbers of an open episode.
UPDATE alerts
SET severity = $severity, value = $value, threshold = $threshold, text = $text, advice = $advice, changed_at = $at
WHERE rule = $rule AND subject = $subject AND state = 'firing';

-- name: alerts_resolve
-- End an episode.
UPDATE alerts SET state = 'resolved', changed_at = $at, resolved_at = $at
WHERE rule = $rule AND subject = $subject AND state = 'firing';

-- name: alert_firing
-- The rule and the subject of one episode, if it fires.
SELECT rule, subject FROM alerts WHERE alert_id = $alert_id AND state = 'firing';

-- name: alerts_acknowledge
-- Acknowledge an episode. The first acknowledgement stays.
UPDATE alerts SET acknowledged_by = $who, acknowledged_at = $now
WHERE alert_id = $alert_id AND acknowledged_by IS NULL;

-- name: alerts_silence
-- Silence a rule until a given time, for one subject or (subject '') for all.
INSERT INTO silences BY NAME
SELECT $rule AS rule, $subject AS subject, $until AS until, $who AS who, $why AS why, $now AS created_at;

-- name: alerts_unsilence
-- End silences of a rule now: that of one subject, or (subject '') that of all.
UPDATE silences SET until = $now WHERE rule = $rule AND subject = $subject AND until > $now;

-- name: alerts_rules_seen
-- Rules that ever fired in this store, whatever their origin.
SELECT DISTINCT rule FROM alerts ORDER BY rule;

-- name: alerts_producers
-- Producers that are open, or were closed recently, and were seen since. `succeeded`: a later producer opened the same
-- journal, which it can do only after this one ended, and took over the messages in it.
SELECT producer_id, client_id, host, pid, started_at, seen_at, closed_at, connected, pending, waiting_retry,
       queue_messages, queue_limit, memory_bytes, memory_limit,
       journal IS NOT NULL AND started_at < max(started_at) OVER (PARTITION BY host, journal) AS succeeded
FROM (SELECT *, TRY_CAST(settings AS JSON)->>'$.journal_dir' AS journal FROM producers)
QUALIFY seen_at > $since AND (closed_at IS NULL OR closed_at > $closed_since)
ORDER BY seen_at;

-- name: alerts_sums
-- Counts per topic and producer over each of the windows, in seconds back from now; the longest begins at $since.
SELECT seconds, topic, producer_id, sum(accepted)::BIGINT AS accepted, sum(acknowledged)::BIGINT AS acknowledged,
       sum(dead)::BIGINT AS dead, sum(failed_attempts)::BIGINT AS failed_attempts, sum(retried)::BIGINT AS retried,
       sum(duplicates)::BIGINT AS duplicates, sum(possible_duplicates)::BIGINT AS possible_duplicates,
       sum(latency_sum)::DOUBLE AS latency_sum
FROM statistics JOIN (SELECT unnest($windows::DOUBLE[]) AS seconds) ON window_start > $now - seconds
WHERE window_start > $since AND window_start <= $now
GROUP BY seconds, topic, producer_id;

-- name: alerts_latencies
-- The latency histogram per topic over a window.
SELECT topic, bucket, sum(count)::BIGINT AS count
FROM latencies
WHERE window_start > $since AND window_start <= $now
GROUP BY topic, bucket;

-- name: alerts_letters
-- Pending dead letters by topic: their number from the hourly counts, the oldest from a scan of its hour only. Those of
-- clusters that no longer exist ($removed) are left out.
WITH hours AS (
    SELECT topic, hour, sum(n) AS n FROM dead_letter_counts
    WHERE state = 'dead' AND list_contains($removed::VARCHAR[], cluster_id) IS NOT TRUE
    GROUP BY topic, hour HAVING sum(n) > 0
), topics AS (
    SELECT topic, sum(n)::BIGINT AS count, min(hour) AS hour FROM hours GROUP BY topic
)
SELECT t.topic, any_value(t.count) AS count, coalesce(min(d.failed_at), any_value(t.hour) * 3600.0) AS oldest
FROM topics t LEFT JOIN dead_letters d
  ON d.topic = t.topic AND d.state = 'dead' AND d.failed_at >= t.hour * 3600 AND d.failed_at < (t.hour + 1) * 3600
     AND list_contains($removed::VARCHAR[], d.cluster_id) IS NOT TRUE
GROUP BY t.topic;

-- name: alerts_letters_came
-- Dead letters of this time that are still pending, by topic; those of clusters that no longer exist ($removed) are left out.
SELECT topic, count(*) AS count FROM dead_letters
WHERE failed_at > $since AND state = 'dead' AND list_contains($removed::VARCHAR[], cluster_id) IS NOT TRUE GROUP BY topic;

-- name: alerts_failing_routes
-- The notification routes that do not work, since when, and the last response.
SELECT name, failing_since, answer FROM alert_routes WHERE failing_since IS NOT NULL;

-- name: alert_routes
-- The notification routes and whether they work.
SELECT r.name, r.kind, r.known_at, r.told_at, r.failing_since, r.answer, r.heartbeat_at,
       (SELECT count(*) FROM alert_outbox o WHERE o.route = r.name AND o.settled_at IS NULL) AS waiting,
       (SELECT count(*) FROM alert_outbox o WHERE o.route = r.name AND o.outcome = 'given up') AS given_up
FROM alert_routes r ORDER BY r.name;

-- name: alerts_route_known
-- Register a route that has a sender; alerts that ended before are not notified through it.
INSERT INTO alert_routes (name, kind, known_at)
SELECT $name, $kind, $now WHERE NOT EXISTS (SELECT 1 FROM alert_routes WHERE name = $name);

-- name: alerts_to_queue
-- Notifications that are due and not queued on a route: beginnings, and ends of notified episodes.
SELECT a.alert_id, w.status
FROM alerts a, (VALUES ('firing'), ('resolved')) w(status), alert_routes r
WHERE r.name = $route AND list_contains(string_split($severities, ','), a.severity)
  AND (a.state = 'firing' OR a.resolved_at >= r.known_at)
  AND ((w.status = 'firing' AND a.telling = 'begin') OR (w.status = 'resolved' AND a.telling_end))
  AND NOT EXISTS (SELECT 1 FROM alert_outbox o
                  WHERE o.route = r.name AND o.alert_id = a.alert_id AND o.status = w.status)
ORDER BY a.started_at LIMIT $limit;

-- name: alerts_queue
-- Queue one notification in the outbox, once.
INSERT INTO alert_outbox (route, alert_id, status, queued_at, attempts, next_at)
SELECT $route, $alert_id, $status, $now, 0, $now
WHERE NOT EXISTS (SELECT 1 FROM alert_outbox WHERE route = $route AND alert_id = $alert_id AND status = $status);

-- name: alerts_to_repeat
-- Firing alerts last notified on a route before a time, except acknowledged and muted ones.
SELECT a.alert_id, 'repeat' AS status
FROM alerts a
LEFT JOIN alert_outbox f ON f.route = $route AND f.alert_id = a.alert_id AND f.status = 'firing'
LEFT JOIN alert_outbox r ON r.route = $route AND r.alert_id = a.alert_id AND r.status = 'repeat'
WHERE a.state = 'firing' AND list_contains(string_split($severities, ','), a.severity)
  AND a.acknowledged_by IS NULL AND a.muted_by IS NULL
  AND (a.telling = 'joined' OR (a.telling = 'begin' AND f.settled_at IS NOT NULL))
  AND (r.alert_id IS NULL OR r.settled_at IS NOT NULL)
  AND (coalesce(r.settled_at, f.settled_at, a.fired_at, a.started_at) <= $before
       OR coalesce(r.settled_at, f.settled_at, a.fired_at, a.started_at) > $ahead)
ORDER BY a.started_at LIMIT $limit;

-- name: alerts_queue_again
-- Queue an earlier repetition once more.
UPDATE alert_outbox
SET queued_at = $now, attempts = 0, next_at = $now, settled_at = NULL, outcome = NULL, answer = NULL
WHERE route = $route AND alert_id = $alert_id AND status = 'repeat' AND settled_at IS NOT NULL;

-- name: alerts_repeats_moot
-- Repetitions that are no longer needed: the alert ended, was acknowledged, or was muted.
SELECT o.alert_id FROM alert_outbox o JOIN alerts a USING (alert_id)
WHERE o.route = $route AND o.status = 'repeat' AND o.settled_at IS NULL
  AND (a.state <> 'firing' OR a.acknowledged_by IS NOT NULL OR a.muted_by IS NOT NULL);

-- name: alerts_repeat_dropped
-- Remove a repetition that is no longer needed.
UPDATE alert_outbox SET settled_at = $now, outcome = 'dropped'
WHERE route = $route AND alert_id = $alert_id AND status = 'repeat' AND settled_at IS NULL;

-- name: alerts_to_renew
-- Firing alerts whose beginning a route accepted, also acknowledged and muted ones, for a receiver that forgets them.
SELECT a.alert_id AS id, a.rule, a.severity, a.subject, a.state, a.value, a.threshold, a.text, a.advice, a.started_at,
       a.changed_at, a.resolved_at, a.acknowledged_by, a.acknowledged_at, a.fired_at
FROM alerts a LEFT JOIN alert_outbox f ON f.route = $route AND f.alert_id = a.alert_id AND f.status = 'firing'
WHERE a.state = 'firing' AND list_contains(string_split($severities, ','), a.severity)
  AND (a.telling = 'joined' OR f.outcome = 'told')
ORDER BY a.rule, a.started_at;

-- name: alerts_outbox_due
-- Due notifications of a route, the oldest first and no end before its beginning; a time too far ahead counts as now.
SELECT o.alert_id AS id, o.status, o.queued_at, o.attempts, a.rule, a.severity, a.subject, a.state, a.value, a.threshold,
       a.text, a.advice, a.started_at, a.changed_at, a.resolved_at, a.acknowledged_by, a.acknowledged_at, a.fired_at
FROM alert_outbox o JOIN alerts a USING (alert_id)
WHERE o.route = $route AND o.settled_at IS NULL AND (o.next_at <= $now OR o.next_at > $farthest)
  AND NOT (o.status = 'resolved' AND EXISTS (
      SELECT 1 FROM alert_outbox b
      WHERE b.route = o.route AND b.alert_id = o.alert_id AND b.status = 'firing' AND b.settled_at IS NULL))
ORDER BY o.queued_at, a.started_at, o.status LIMIT $limit;

-- name: alerts_outbox_said
-- Record a delivered notification, or one that was given up.
UPDATE alert_outbox SET settled_at = $now, outcome = $outcome, answer = $answer, attempts = attempts + 1
WHERE route = $route AND alert_id = $alert_id AND status = $status AND settled_at IS NULL;

-- name: alerts_outbox_later
-- Record a failed delivery, to be tried again.
UPDATE alert_outbox SET attempts = attempts + 1, next_at = $next_at, answer = $answer
WHERE route = $route AND alert_id = $alert_id AND status = $status AND settled_at IS NULL;

-- name: alerts_outbox_forget
-- Delete notifications settled long ago, and those of deleted alerts.
DELETE FROM alert_outbox
WHERE settled_at < $before OR NOT EXISTS (SELECT 1 FROM alerts a WHERE a.alert_id = alert_outbox.alert_id);

-- name: alerts_route_answered
-- Record a successful delivery of a route.
UPDATE alert_routes SET told_at = $now, failing_since = NULL, answer = $answer WHERE name = $name;

-- name: alerts_route_failed
-- Record a failed delivery of a route.
UPDATE alert_routes SET failing_since = coalesce(failing_since, $now), answer = $answer WHERE name = $name;

-- name: alerts_route_heartbeat
-- Record a heartbeat that confirms the evaluation of alerts.
UPDATE alert_routes SET heartbeat_at = $now WHERE name = $name;

-- name: alerts_of_outbox
-- Notifications of an alert: route, time, and the response.
SELECT route, status, queued_at, attempts, settled_at, outcome, answer FROM alert_outbox
WHERE alert_id = $alert_id ORDER BY queued_at, status;

-- name: alerts_shown
-- Episodes for a page: one, or those of a state in a time range, of a topic or a producer; the newest first. Those about
-- producers of another application or cluster are left out. A producer without an application counts the dead letters of
-- all.
SELECT a.rule, a.severity, a.subject, a.state, a.value, a.threshold, a.text, a.advice, a.started_at, a.changed_at,
       a.resolved_at, a.acknowledged_by, a.acknowledged_at, a.fired_at, a.since, a.told_by, a.muted_by, a.telling,
       a.telling_end,
       EXISTS (SELECT 1 FROM silences s
               WHERE s.rule = a.rule AND s.subject IN ('', a.subject) AND s.until > $now) AS silenced,
       count(*) OVER () AS total
FROM alerts a
WHERE ($alert_id IS NULL OR a.alert_id = $alert_id) AND ($state IS NULL OR a.state = $state)
  AND ($since IS NULL OR coalesce(a.resolved_at, $since) >= $since) AND ($until IS NULL OR a.started_at < $until)
  AND ($topic IS NULL OR a.subject = $topic OR starts_with(a.subject, $topic::VARCHAR || '/'))
  AND ($producer IS NULL OR a.subject = $producer OR a.told_by = $producer)
  AND NOT EXISTS (SELECT 1 FROM producers p
                  WHERE p.producer_id = a.subject
                    AND (p.application <> $application AND (p.application <> '' OR a.rule <> 'high_dlq_size')
                         OR p.cluster_id <> $cluster AND p.cluster_id <> ''))
ORDER BY a.started_at DESC LIMIT $limit;

-- name: alerts_history
-- Episodes as in alerts_shown, those of one rule and subject together: the latest one, their number, their first start, and
-- the seconds for which they fired, in total and at most. `total` counts the episodes of all rules and subjects.
SELECT a.rule, a.severity, a.subject, a.state, a.value, a.threshold, a.text, a.advice, a.started_at, a.changed_at,
       a.resolved_at, a.acknowledged_by, a.acknowledged_at, a.fired_at, a.since, a.told_by, a.muted_by, a.telling,
       a.telling_end, count(*) OVER same AS episodes, min(a.began) OVER same AS first_at,
       sum(a.lasted) OVER same AS lasted, max(a.lasted) OVER same AS longest, count(*) OVER () AS total
FROM (SELECT *, coalesce(fired_at, started_at) AS began,
             greatest(0, coalesce(resolved_at, $now) - coalesce(fired_at, started_at)) AS lasted FROM alerts) a
WHERE ($state IS NULL OR a.state = $state)
  AND ($since IS NULL OR coalesce(a.resolved_at, $since) >= $since) AND ($until IS NULL OR a.started_at < $until)
  AND ($topic IS NULL OR a.subject = $topic OR starts_with(a.subject, $topic::VARCHAR || '/'))
  AND ($producer IS NULL OR a.subject = $producer OR a.told_by = $producer)
  AND NOT EXISTS (SELECT 1 FROM producers p
                  WHERE p.producer_id = a.subject
                    AND (p.application <> $application AND (p.application <> '' OR a.rule <> 'high_dlq_size')
                         OR p.cluster_id <> $cluster AND p.cluster_id <> ''))
WINDOW same AS (PARTITION BY a.rule, a.subject)
QUALIFY row_number() OVER (PARTITION BY a.rule, a.subject ORDER BY a.started_at DESC) = 1
ORDER BY a.started_at DESC LIMIT $limit;

-- name: alerts_episodes
-- The latest episodes of one rule and subject, and the number of all.
SELECT rule, severity, subject, state, value, threshold, text, advice, started_at, changed_at, resolved_at,
       acknowledged_by, acknowledged_at, fired_at, since, told_by, muted_by, telling, telling_end,
       count(*) OVER () AS total
FROM alerts WHERE rule = $rule AND subject = $subject AND state <> 'pending'
ORDER BY started_at DESC LIMIT $limit;

-- name: alerts_counted
-- Per rule that ever fired: the number firing, pending and in total, and the start of the latest.
SELECT rule, count(*) FILTER (WHERE state = 'firing') AS firing, count(*) FILTER (WHERE state = 'pending') AS pending,
       count(*) FILTER (WHERE state <> 'pending') AS episodes, max(fired_at) AS last_at
FROM alerts GROUP BY rule;

-- name: alerts_outbox_open
-- Undelivered notifications, the oldest first, then those that were given up.
SELECT o.route, o.alert_id, o.status, o.queued_at, o.attempts, o.next_at, o.settled_at, o.answer,
       a.rule, a.severity, a.subject, a.text
FROM alert_outbox o JOIN alerts a USING (alert_id)
WHERE o.settled_at IS NULL OR o.outcome = 'given up'
ORDER BY o.settled_at IS NOT NULL, o.queued_at LIMIT $limit;

-- name: alerts_judge
-- The owner of the evaluation lease, its expiry, and the client id if it is a producer.
SELECT l.owner, l.lease_until, p.client_id, p.host, p.pid
FROM leases l LEFT JOIN producers p ON p.producer_id = l.owner WHERE l.name = 'alerts';
