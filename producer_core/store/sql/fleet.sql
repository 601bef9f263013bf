-- Who sends, for the fleet page. Ranges are as in queries.sql.

-- name: fleet_producers
-- Producers without their settings, the last heard of first; `since` leaves out those not seen since then.
SELECT producer_id, cluster_id, client_id, host, pid, version, started_at, seen_at, closed_at, connected, connection_error,
       pending, waiting_retry, queue_messages, queue_limit, memory_bytes, memory_limit, delivery
FROM producers
WHERE ($since IS NULL OR seen_at >= $since) AND ($producer IS NULL OR producer_id = $producer)
ORDER BY seen_at DESC, producer_id;

-- name: fleet_known
-- How many producers the store knows, and on how many hosts.
SELECT count(*) AS producers, count(DISTINCT host) AS hosts FROM producers;

-- name: fleet_counts
-- What each producer settled in a range; `recently`: acknowledged since $recent.
SELECT producer_id, sum(acknowledged)::BIGINT AS acknowledged, sum(dead)::BIGINT AS dead,
       sum(failed_attempts)::BIGINT AS failed_attempts,
       coalesce(sum(acknowledged) FILTER (window_start >= $recent), 0)::BIGINT AS recently
FROM statistics
WHERE ($since IS NULL OR window_start >= $since) AND ($until IS NULL OR window_start < $until)
  AND ($topic IS NULL OR topic = $topic) AND ($producer IS NULL OR producer_id = $producer)
GROUP BY producer_id ORDER BY producer_id;

-- name: fleet_latencies
-- The histogram of acknowledgement latencies of each producer over a range, each as two lists in the order of buckets.
SELECT producer_id, list(bucket ORDER BY bucket) AS buckets, list(n ORDER BY bucket) AS counts
FROM (SELECT producer_id, bucket, sum(count)::BIGINT AS n
      FROM latencies
      WHERE ($since IS NULL OR window_start >= $since) AND ($until IS NULL OR window_start < $until)
        AND ($topic IS NULL OR topic = $topic) AND ($producer IS NULL OR producer_id = $producer)
      GROUP BY producer_id, bucket)
GROUP BY producer_id ORDER BY producer_id;
