-- What fails, for the errors page. A range is [since, until) as in queries.sql; `before` is where the same time before
-- begins, and `inside` says to which of the two a row belongs.

-- name: failures_by_code
-- Failed attempts of the range and of the same time before, by topic and error code.
SELECT topic, code, kind, window_start >= coalesce($since, 0) AS inside, sum(count)::BIGINT AS count,
       max(window_start + resolution - 1)::BIGINT AS last_seen
FROM errors
WHERE window_start >= coalesce($before, $since, 0) AND ($until IS NULL OR window_start < $until)
  AND ($topic IS NULL OR topic = $topic) AND ($producer IS NULL OR producer_id = $producer)
GROUP BY ALL ORDER BY topic, code, kind, inside;

-- name: troubles_by_topic
-- What became of the messages of the range and of the same time before, by topic.
SELECT topic, window_start >= coalesce($since, 0) AS inside, sum(acknowledged)::BIGINT AS acknowledged,
       sum(dead)::BIGINT AS dead, sum(failed_attempts)::BIGINT AS failed_attempts, sum(retried)::BIGINT AS retried,
       sum(retry_successes)::BIGINT AS retry_successes
FROM statistics
WHERE window_start >= coalesce($before, $since, 0) AND ($until IS NULL OR window_start < $until)
  AND ($topic IS NULL OR topic = $topic) AND ($producer IS NULL OR producer_id = $producer)
GROUP BY ALL ORDER BY topic, inside;

-- name: troubles_series
-- What became of messages by window of `bucket` seconds, over all topics.
SELECT (window_start // $bucket * $bucket)::BIGINT AS window_start,
       greatest($bucket, max(resolution))::BIGINT AS seconds, sum(acknowledged)::BIGINT AS acknowledged,
       sum(dead)::BIGINT AS dead, sum(failed_attempts)::BIGINT AS failed_attempts,
       sum(retry_successes)::BIGINT AS retry_successes
FROM statistics
WHERE ($since IS NULL OR window_start >= $since) AND ($until IS NULL OR window_start < $until)
  AND ($topic IS NULL OR topic = $topic) AND ($producer IS NULL OR producer_id = $producer)
GROUP BY 1 ORDER BY 1;

-- name: codes_known_before
-- Error codes that came back at any time before `since`, as far as the store goes back.
SELECT DISTINCT code FROM errors
WHERE ($since IS NULL OR window_start < $since) AND ($topic IS NULL OR topic = $topic) ORDER BY code;

-- name: groups_that_died_again
-- Of these groups those with a letter that had died before and was replayed: its first death is written over.
SELECT DISTINCT fingerprint FROM dead_letters
WHERE ($since IS NULL OR failed_at >= $since) AND replay_count > 0 AND list_contains($marks::VARCHAR[], fingerprint)
ORDER BY fingerprint;

-- name: statistics_begin
-- From when on the store has statistics; NULL where it has none.
SELECT min(window_start)::BIGINT AS begins FROM statistics;
