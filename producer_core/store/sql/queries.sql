-- Queries of the dashboard, the command line and the recorder. Ranges are [since, until) in seconds since 1970 and select
-- by the start of a window; a parameter that is left out, or NULL, does not restrict. `of_application(producer_id)` is not
-- a function: store/queries.py replaces it with a condition on the producer's application, $application.

-- name: totals
-- Sums over a range: accepted, acknowledged, dead, failed_attempts, ..., bytes, latency_sum; always one row.
SELECT coalesce(sum(accepted), 0)::BIGINT AS accepted, coalesce(sum(acknowledged), 0)::BIGINT AS acknowledged,
       coalesce(sum(dead), 0)::BIGINT AS dead, coalesce(sum(failed_attempts), 0)::BIGINT AS failed_attempts,
       coalesce(sum(retried), 0)::BIGINT AS retried, coalesce(sum(retry_successes), 0)::BIGINT AS retry_successes,
       coalesce(sum(duplicates), 0)::BIGINT AS duplicates,
       coalesce(sum(possible_duplicates), 0)::BIGINT AS possible_duplicates,
       coalesce(sum(bytes), 0)::BIGINT AS bytes, coalesce(sum(latency_sum), 0)::DOUBLE AS latency_sum
FROM statistics
WHERE ($since IS NULL OR window_start >= $since) AND ($until IS NULL OR window_start < $until)
  AND ($topic IS NULL OR topic = $topic) AND ($producer IS NULL OR producer_id = $producer)
  AND of_application(producer_id)
  AND ($cluster IS NULL OR cluster_id = $cluster);

-- name: totals_by_topic
-- The sums of `totals`, one row per topic.
SELECT topic, sum(accepted)::BIGINT AS accepted, sum(acknowledged)::BIGINT AS acknowledged,
       sum(dead)::BIGINT AS dead, sum(failed_attempts)::BIGINT AS failed_attempts, sum(retried)::BIGINT AS retried,
       sum(retry_successes)::BIGINT AS retry_successes, sum(duplicates)::BIGINT AS duplicates,
       sum(possible_duplicates)::BIGINT AS possible_duplicates, sum(bytes)::BIGINT AS bytes,
       sum(latency_sum)::DOUBLE AS latency_sum
FROM statistics
WHERE ($since IS NULL OR window_start >= $since) AND ($until IS NULL OR window_start < $until)
  AND ($producer IS NULL OR producer_id = $producer) AND ($cluster IS NULL OR cluster_id = $cluster)
  AND of_application(producer_id)
GROUP BY topic ORDER BY topic;

-- name: series
-- By window of `bucket` seconds and topic: the sums, and `seconds`, the time that a row covers (for rates).
SELECT (window_start // $bucket * $bucket)::BIGINT AS window_start,
       greatest($bucket, max(resolution))::BIGINT AS seconds, topic,
       sum(accepted)::BIGINT AS accepted, sum(acknowledged)::BIGINT AS acknowledged, sum(dead)::BIGINT AS dead,
       sum(failed_attempts)::BIGINT AS failed_attempts, sum(retried)::BIGINT AS retried,
       sum(duplicates)::BIGINT AS duplicates, sum(bytes)::BIGINT AS bytes, sum(latency_sum)::DOUBLE AS latency_sum
FROM statistics
WHERE ($since IS NULL OR window_start >= $since) AND ($until IS NULL OR window_start < $until)
  AND ($topic IS NULL OR topic = $topic) AND ($producer IS NULL OR producer_id = $producer)
  AND of_application(producer_id)
  AND ($cluster IS NULL OR cluster_id = $cluster)
GROUP BY 1, topic ORDER BY 1, topic;

-- name: latency_buckets
-- One histogram of acknowledgement latencies over a range: bucket and count (producer_core.metrics.histogram).
SELECT bucket, sum(count)::BIGINT AS count
FROM latencies
WHERE ($since IS NULL OR window_start >= $since) AND ($until IS NULL OR window_start < $until)
  AND ($topic IS NULL OR topic = $topic) AND ($producer IS NULL OR producer_id = $producer)
  AND of_application(producer_id)
  AND ($cluster IS NULL OR cluster_id = $cluster)
GROUP BY bucket ORDER BY bucket;

-- name: latency_buckets_by_topic
-- The histogram of `latency_buckets`, one per topic.
SELECT topic, bucket, sum(count)::BIGINT AS count
FROM latencies
WHERE ($since IS NULL OR window_start >= $since) AND ($until IS NULL OR window_start < $until)
  AND ($producer IS NULL OR producer_id = $producer) AND ($cluster IS NULL OR cluster_id = $cluster)
  AND of_application(producer_id)
GROUP BY topic, bucket ORDER BY topic, bucket;

-- name: latency_buckets_by_window
-- The histogram of `latency_buckets`, one per window of `bucket_seconds` seconds.
SELECT (window_start // $bucket_seconds * $bucket_seconds)::BIGINT AS window_start, bucket,
       sum(count)::BIGINT AS count
FROM latencies
WHERE ($since IS NULL OR window_start >= $since) AND ($until IS NULL OR window_start < $until)
  AND ($topic IS NULL OR topic = $topic) AND ($producer IS NULL OR producer_id = $producer)
  AND of_application(producer_id)
  AND ($cluster IS NULL OR cluster_id = $cluster)
GROUP BY 1, bucket ORDER BY 1, bucket;

-- name: latency_buckets_by_window_and_topic
-- The histogram of `latency_buckets`, one per window of `bucket_seconds` seconds and topic.
SELECT (window_start // $bucket_seconds * $bucket_seconds)::BIGINT AS window_start, topic, bucket,
       sum(count)::BIGINT AS count
FROM latencies
WHERE ($since IS NULL OR window_start >= $since) AND ($until IS NULL OR window_start < $until)
  AND ($topic IS NULL OR topic = $topic) AND ($producer IS NULL OR producer_id = $producer)
  AND of_application(producer_id)
  AND ($cluster IS NULL OR cluster_id = $cluster)
GROUP BY 1, topic, bucket ORDER BY 1, topic, bucket;

-- name: latency_histograms
-- The histograms of `latency_buckets_by_window`, one row per window: its buckets in order, and their counts.
SELECT window_start, list(bucket ORDER BY bucket) AS buckets, list(count ORDER BY bucket) AS counts
FROM (SELECT (window_start // $bucket_seconds * $bucket_seconds)::BIGINT AS window_start, bucket,
             sum(count)::BIGINT AS count
      FROM latencies
      WHERE ($since IS NULL OR window_start >= $since) AND ($until IS NULL OR window_start < $until)
        AND ($topic IS NULL OR topic = $topic) AND ($producer IS NULL OR producer_id = $producer)
        AND of_application(producer_id)
        AND ($cluster IS NULL OR cluster_id = $cluster)
      GROUP BY 1, bucket)
GROUP BY window_start ORDER BY window_start;

-- name: errors_series
-- Failed attempts by window of `bucket` seconds and error code.
SELECT (window_start // $bucket * $bucket)::BIGINT AS window_start, code, sum(count)::BIGINT AS count
FROM errors
WHERE ($since IS NULL OR window_start >= $since) AND ($until IS NULL OR window_start < $until)
  AND ($topic IS NULL OR topic = $topic) AND ($producer IS NULL OR producer_id = $producer)
  AND of_application(producer_id)
  AND ($cluster IS NULL OR cluster_id = $cluster)
GROUP BY 1, code ORDER BY 1, code;

-- name: topics
-- All topics in the store, each with the time of its last write.
SELECT topic, max(window_start)::BIGINT AS last_seen FROM statistics
WHERE ($cluster IS NULL OR cluster_id = $cluster) AND of_application(producer_id)
GROUP BY topic ORDER BY topic;

-- name: dead_letters_by_topic
-- Pending dead letters (state `dead`, or the given state) by topic, most first.
SELECT topic, count(*) AS count, min(failed_at) AS oldest, max(failed_at) AS newest
FROM dead_letters
WHERE state = coalesce($state, 'dead') AND ($cluster IS NULL OR cluster_id = $cluster)
  AND ($application IS NULL OR application = $application)
GROUP BY topic ORDER BY count DESC, topic;

-- name: producers
-- All producers, the most recently seen first; `since` leaves out those not seen since then. A dashboard that runs
-- replays is left out: applications do not send through it, and it must not hide that a producer is down. `circuit`: the
-- text of an alert about an open circuit, that of the cluster first; NULL while all are closed.
SELECT *, (SELECT first(text ORDER BY subject <> producer_id, started_at) FROM alerts
           WHERE rule = 'circuit_opened' AND state = 'firing' AND told_by = producer_id) AS circuit
FROM producers
WHERE ($since IS NULL OR seen_at >= $since) AND ($cluster IS NULL OR cluster_id = $cluster)
  AND ($application IS NULL OR application = $application)
  AND client_id <> 'producer-core-dashboard'
ORDER BY seen_at DESC, producer_id;

-- name: alerts_firing
-- Firing alerts, the most severe first, each with whether a silence covers it at `now`. Those about producers of another
-- application or cluster are left out. A producer without an application counts the dead letters of all.
SELECT alerts.*, EXISTS (
           SELECT 1 FROM silences
           WHERE silences.rule = alerts.rule AND silences.subject IN ('', alerts.subject)
             AND silences.until > $now) AS silenced
FROM alerts WHERE state = 'firing'
  AND NOT EXISTS (SELECT 1 FROM producers p
                  WHERE p.producer_id = alerts.subject
                    AND (p.application <> $application AND (p.application <> '' OR alerts.rule <> 'high_dlq_size')
                         OR p.cluster_id <> $cluster AND p.cluster_id <> ''))
ORDER BY CASE severity WHEN 'critical' THEN 0 WHEN 'warning' THEN 1 ELSE 2 END, started_at DESC;

-- name: applications
-- The applications of the store, by name; empty for producers and dead letters without one.
SELECT application FROM (SELECT DISTINCT application FROM producers UNION SELECT DISTINCT application FROM dead_letters)
ORDER BY application;

-- name: producer_applications
-- The applications of these producers and the versions in their settings, of those that have any.
SELECT * FROM (
    SELECT producer_id, application, coalesce(TRY_CAST(settings AS JSON)->>'$.application_version', '') AS version
    FROM producers WHERE list_contains($producers::VARCHAR[], producer_id)
) WHERE application <> '' OR version <> '';

-- name: clusters
-- The clusters of the store's producers and dead letters, by id.
SELECT cluster_id FROM (SELECT DISTINCT cluster_id FROM producers UNION SELECT DISTINCT cluster_id FROM dead_letter_counts)
WHERE cluster_id <> '' ORDER BY cluster_id;

-- name: data_age
-- The age of the data: seen_at of the latest heartbeat, window_start of the latest row; NULL without any.
SELECT (SELECT max(seen_at) FROM producers) AS seen_at,
       (SELECT max(window_start) FROM statistics) AS window_start;

-- name: operations
-- Replays, the latest first; `state` restricts to one state, `cluster` to an id, `operations` to a list of ids.
SELECT * FROM operations
WHERE ($state IS NULL OR state = $state) AND ($operation IS NULL OR operation_id = $operation)
  AND ($cluster IS NULL OR cluster_id = $cluster)
  AND ($operations IS NULL OR list_contains($operations::VARCHAR[], operation_id))
ORDER BY created_at DESC LIMIT coalesce($limit, 50);

-- name: operation_records
-- The records of one replay and the outcome of each, in order.
SELECT * FROM operation_records WHERE operation_id = $operation AND ($state IS NULL OR state = $state)
ORDER BY ord LIMIT coalesce($limit, 1000) OFFSET coalesce($offset, 0);

-- name: audit_latest
-- Operators' actions, the latest first; `who` matches a part of the name, in any case.
SELECT acted_at, who, origin, host, action, selection, count, outcome FROM audit
WHERE ($since IS NULL OR acted_at >= $since) AND ($until IS NULL OR acted_at < $until)
  AND ($action IS NULL OR action = $action) AND ($who IS NULL OR contains(lower(who), lower($who)))
ORDER BY acted_at DESC, rowid DESC LIMIT coalesce($limit, 100);

-- name: audit_actions
-- The actions that were ever recorded.
SELECT DISTINCT action FROM audit ORDER BY action;

-- name: silences
-- Silences that are in force at `now`.
SELECT rule, subject, until, who, why, created_at FROM silences WHERE until > $now ORDER BY until;

-- name: settings
-- The settings of this store, by name.
SELECT name, value FROM settings ORDER BY name;
