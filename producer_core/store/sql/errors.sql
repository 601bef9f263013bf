-- Queries of the errors page. A range is [since, until) as in queries.sql; `before` is the start of the previous range of
-- the same length, and `inside` tells the two ranges apart.

-- name: failures_by_code
-- Failed attempts of the range and of the previous one, by topic and error code.
SELECT topic, code, kind, window_start >= coalesce($since, 0) AS inside, sum(count)::BIGINT AS count,
       max(window_start + resolution - 1)::BIGINT AS last_seen
FROM errors
WHERE window_start >= coalesce($before, $since, 0) AND ($until IS NULL OR window_start < $until)
  AND ($topic IS NULL OR topic = $topic) AND ($producer IS NULL OR producer_id = $producer)
  AND ($cluster IS NULL OR cluster_id = $cluster) AND of_application(producer_id)
GROUP BY ALL ORDER BY topic, code, kind, inside;

-- name: troubles_by_topic
-- Outcomes of the messages of the range and of the previous one, by topic.
SELECT topic, window_start >= coalesce($since, 0) AS inside, sum(acknowledged)::BIGINT AS acknowledged,
       sum(dead)::BIGINT AS dead, sum(failed_attempts)::BIGINT AS failed_attempts, sum(retried)::BIGINT AS retried,
       sum(retry_successes)::BIGINT AS retry_successes
FROM statistics
WHERE window_start >= coalesce($before, $since, 0) AND ($until IS NULL OR window_start < $until)
  AND ($topic IS NULL OR topic = $topic) AND ($producer IS NULL OR producer_id = $producer)
  AND ($cluster IS NULL OR cluster_id = $cluster) AND of_application(producer_id)
GROUP BY ALL ORDER BY topic, inside;

-- name: troubles_series
-- Outcomes of messages by window of `bucket` seconds, over all topics.
SELECT (window_start // $bucket * $bucket)::BIGINT AS window_start,
       greatest($bucket, max(resolution))::BIGINT AS seconds, sum(acknowledged)::BIGINT AS acknowledged,
       sum(dead)::BIGINT AS dead, sum(failed_attempts)::BIGINT AS failed_attempts,
       sum(retry_successes)::BIGINT AS retry_successes
FROM statistics
WHERE ($since IS NULL OR window_start >= $since) AND ($until IS NULL OR window_start < $until)
  AND ($topic IS NULL OR topic = $topic) AND ($producer IS NULL OR producer_id = $producer)
  AND ($cluster IS NULL OR cluster_id = $cluster) AND of_application(producer_id)
GROUP BY 1 ORDER BY 1;

-- name: codes_known_before
-- Error codes reported at any time before `since`, as far back as the store goes.
SELECT DISTINCT code FROM errors
WHERE ($since IS NULL OR window_start < $since) AND ($topic IS NULL OR topic = $topic)
  AND ($cluster IS NULL OR cluster_id = $cluster) AND of_application(producer_id)
ORDER BY code;

-- name: issues_first_seen
-- When each error code was first reported or left a dead letter on each topic, as far back as the store goes.
SELECT topic, code, min(seen)::DOUBLE AS first_seen
FROM (SELECT topic, code, window_start AS seen FROM errors
      WHERE ($topic IS NULL OR topic = $topic) AND ($cluster IS NULL OR cluster_id = $cluster)
        AND of_application(producer_id)
      UNION ALL
      SELECT topic, code, failed_at AS seen FROM dead_letters
      WHERE ($topic IS NULL OR topic = $topic) AND ($cluster IS NULL OR cluster_id = $cluster)
        AND ($application IS NULL OR application = $application))
GROUP BY topic, code ORDER BY topic, code;

-- name: issues_series
-- Failed attempts by window of `bucket` seconds, topic and error code.
SELECT (window_start // $bucket * $bucket)::BIGINT AS window_start, topic, code, sum(count)::BIGINT AS count
FROM errors
WHERE ($since IS NULL OR window_start >= $since) AND ($until IS NULL OR window_start < $until)
  AND ($topic IS NULL OR topic = $topic) AND ($producer IS NULL OR producer_id = $producer)
  AND ($cluster IS NULL OR cluster_id = $cluster) AND of_application(producer_id)
GROUP BY 1, topic, code ORDER BY 1, topic, code;

-- name: groups_that_died_again
-- Of these groups, those with a dead letter that failed before and was replayed: its first failure is overwritten.
SELECT DISTINCT fingerprint FROM dead_letters
WHERE ($since IS NULL OR failed_at >= $since) AND replay_count > 0 AND list_contains($marks::VARCHAR[], fingerprint)
ORDER BY fingerprint;

-- name: statistics_begin
-- The start of the store's statistics; NULL without statistics.
SELECT min(window_start)::BIGINT AS begins FROM statistics;
