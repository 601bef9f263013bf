-- Queries of the fleet page. Ranges are as in queries.sql.

-- name: fleet_producers
-- Producers without their settings, the most recently seen first; `since` leaves out those not seen since then.
SELECT producer_id, cluster_id, application, client_id, host, pid, version, started_at, seen_at, closed_at, connected, connection_error,
       pending, waiting_retry, queue_messages, queue_limit, memory_bytes, memory_limit, delivery
FROM producers
WHERE ($since IS NULL OR seen_at >= $since) AND ($producer IS NULL OR producer_id = $producer)
  AND ($cluster IS NULL OR cluster_id = $cluster) AND ($application IS NULL OR application = $application)
ORDER BY seen_at DESC, producer_id;

-- name: fleet_known
-- The numbers of producers and of hosts that the store knows.
SELECT count(*) AS producers, count(DISTINCT host) AS hosts FROM producers
WHERE ($cluster IS NULL OR cluster_id = $cluster) AND ($application IS NULL OR application = $application);

-- name: fleet_counts
-- Acknowledged messages per producer in a range, and `recently`: from $recent until $recent_end. Dead letters are counted
-- separately.
SELECT producer_id, sum(acknowledged)::BIGINT AS acknowledged,
       coalesce(sum(acknowledged) FILTER (window_start >= $recent AND window_start < $recent_end), 0)::BIGINT AS recently
FROM statistics
WHERE ($since IS NULL OR window_start >= $since) AND ($until IS NULL OR window_start < $until)
  AND ($topic IS NULL OR topic = $topic) AND ($producer IS NULL OR producer_id = $producer)
  AND ($cluster IS NULL OR cluster_id = $cluster) AND of_application(producer_id)
GROUP BY producer_id ORDER BY producer_id;

-- name: deaths_by_writer
-- Dead letters by producer and topic in a range.
SELECT DISTINCT topic, producer_id FROM dead_letters
WHERE ($since IS NULL OR failed_at >= $since) AND ($until IS NULL OR failed_at < $until)
  AND ($topic IS NULL OR topic = $topic) AND ($producer IS NULL OR producer_id = $producer)
  AND ($cluster IS NULL OR cluster_id = $cluster) AND ($application IS NULL OR application = $application)
ORDER BY topic, producer_id;

-- name: fleet_latencies
-- The histogram of acknowledgement latencies of each producer over a range, each as two lists in the order of buckets.
SELECT producer_id, list(bucket ORDER BY bucket) AS buckets, list(n ORDER BY bucket) AS counts
FROM (SELECT producer_id, bucket, sum(count)::BIGINT AS n
      FROM latencies
      WHERE ($since IS NULL OR window_start >= $since) AND ($until IS NULL OR window_start < $until)
        AND ($topic IS NULL OR topic = $topic) AND ($producer IS NULL OR producer_id = $producer)
  AND ($cluster IS NULL OR cluster_id = $cluster) AND of_application(producer_id)
      GROUP BY producer_id, bucket)
GROUP BY producer_id ORDER BY producer_id;
