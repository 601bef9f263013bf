-- Queries of the Prometheus endpoint. Counters are sums since the store was created: the rows of a table, and the sums of
-- those that retention deleted from it.

-- name: metric_topics
-- The totals of each topic, the topics that the store has known longest first.
SELECT topic, sum(acknowledged)::BIGINT AS acknowledged, sum(bytes)::BIGINT AS bytes, sum(dead)::BIGINT AS dead,
       sum(retried)::BIGINT AS retried, sum(retry_successes)::BIGINT AS retry_successes,
       sum(duplicates)::BIGINT AS duplicates, sum(possible_duplicates)::BIGINT AS possible_duplicates,
       fsum(latency_sum)::DOUBLE AS latency_sum
FROM (SELECT window_start AS first_window, topic, acknowledged, bytes, dead, retried, retry_successes, duplicates,
             possible_duplicates, latency_sum FROM statistics
      UNION ALL
      SELECT first_window, topic, acknowledged, bytes, dead, retried, retry_successes, duplicates,
             possible_duplicates, latency_sum FROM expired_statistics)
GROUP BY topic ORDER BY min(first_window), topic;

-- name: metric_latencies
-- The histogram of each topic, of the rows of [since, until).
SELECT topic, bucket, sum(count)::BIGINT AS count FROM latencies
WHERE window_start >= $since AND ($until IS NULL OR window_start < $until)
GROUP BY topic, bucket;

-- name: metric_expired_latencies
-- The histogram of each topic, of the rows that retention deleted.
SELECT topic, bucket, sum(count)::BIGINT AS count FROM expired_latencies GROUP BY topic, bucket;

-- name: metric_latencies_total
-- The total count of all histograms, of the rows before a time and those that retention deleted.
SELECT (SELECT coalesce(sum(count), 0) FROM latencies WHERE window_start < $before)
       + (SELECT coalesce(sum(count), 0) FROM expired_latencies) AS total;

-- name: metric_failed_attempts
-- Failed attempts by topic and error code, the codes that the store has known longest first.
SELECT topic, code, sum(count)::BIGINT AS count
FROM (SELECT window_start AS first_window, topic, code, count FROM errors
      UNION ALL
      SELECT first_window, topic, code, count FROM expired_errors)
GROUP BY topic, code ORDER BY min(first_window), code, topic;

-- name: metric_client
-- The totals of all Kafka clients; always one row.
SELECT coalesce(sum(batches), 0)::BIGINT AS batches, coalesce(sum(batch_messages), 0)::BIGINT AS batch_messages,
       coalesce(sum(batch_bytes), 0)::BIGINT AS batch_bytes, coalesce(sum(epoch_rises), 0)::BIGINT AS epoch_rises
FROM (SELECT batches, batch_messages, batch_bytes, epoch_rises FROM client_statistics
      UNION ALL
      SELECT batches, batch_messages, batch_bytes, epoch_rises FROM expired_client_statistics);

-- name: metric_brokers
-- The totals of each broker.
SELECT broker_id, sum(requests)::BIGINT AS requests, sum(retries)::BIGINT AS retries, sum(timeouts)::BIGINT AS timeouts,
       sum(disconnects)::BIGINT AS disconnects,
       sum(queue_count)::BIGINT AS queue_count, fsum(queue_sum)::DOUBLE AS queue_sum,
       sum(outbuf_count)::BIGINT AS outbuf_count, fsum(outbuf_sum)::DOUBLE AS outbuf_sum,
       sum(rtt_count)::BIGINT AS rtt_count, fsum(rtt_sum)::DOUBLE AS rtt_sum,
       sum(throttle_count)::BIGINT AS throttle_count, fsum(throttle_sum)::DOUBLE AS throttle_sum
FROM (SELECT * EXCLUDE (window_start), window_start AS first_window FROM broker_statistics
      UNION ALL BY NAME
      SELECT * FROM expired_broker_statistics)
GROUP BY broker_id ORDER BY broker_id;

-- name: metric_producers
-- The state of the producers that sent a heartbeat since `alive_since`, summed; `heartbeat_at` is the latest of any
-- producer. A dashboard that runs replays is left out.
SELECT count(*) FILTER (running) AS running, count(*) FILTER (running AND connected) AS connected,
       coalesce(sum(pending) FILTER (running), 0)::BIGINT AS pending,
       coalesce(sum(waiting_retry) FILTER (running), 0)::BIGINT AS waiting_retry,
       coalesce(sum(queue_messages) FILTER (running), 0)::BIGINT AS queue_messages,
       coalesce(sum(queue_limit) FILTER (running), 0)::BIGINT AS queue_limit,
       max(seen_at) AS heartbeat_at
FROM (SELECT *, closed_at IS NULL AND seen_at >= $alive_since AS running FROM producers
      WHERE client_id <> 'producer-core-dashboard');

-- name: metric_applications
-- The running producers of each application; empty for those without one. A dashboard that runs replays is left out.
SELECT application, count(*) AS running FROM producers
WHERE closed_at IS NULL AND seen_at >= $alive_since AND client_id <> 'producer-core-dashboard'
GROUP BY application ORDER BY application;

-- name: metric_dead_letters
-- Dead letters that an operator may still act on, by topic, state, error code and verdict.
SELECT topic, state, code, verdict, sum(n)::BIGINT AS count FROM dead_letter_counts
WHERE state IN ('dead', 'replaying', 'archived')
GROUP BY topic, state, code, verdict HAVING sum(n) <> 0 ORDER BY topic, state, code, verdict;

-- name: metric_firing_alerts
-- Firing alerts by rule and severity.
SELECT rule, severity, count(*) AS count FROM alerts WHERE state = 'firing'
GROUP BY rule, severity ORDER BY rule, severity;
