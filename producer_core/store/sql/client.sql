-- librdkafka's statistics, for the latency page and for diagnosis. Means are sums over counts; a `_p99` is the
-- highest p99 of one second of one broker, as librdkafka reported it. Ranges are as in queries.sql.

-- name: client_series
-- By window of `bucket` seconds: queue fill, batches and polling, summed over producers; `seconds` a row covers.
SELECT (window_start // $bucket * $bucket)::BIGINT AS window_start,
       greatest($bucket, max(resolution))::BIGINT AS seconds, sum(samples)::BIGINT AS samples,
       sum(cut_off)::BIGINT AS cut_off, sum(queued_sum)::BIGINT AS queued_sum, sum(room_sum)::BIGINT AS room_sum, sum(batches)::BIGINT AS batches,
       sum(batch_messages)::BIGINT AS batch_messages, sum(batch_bytes)::BIGINT AS batch_bytes,
       sum(epoch_rises)::BIGINT AS epoch_rises, max(fill_highest) AS fill_highest,
       max(unpolled_highest)::BIGINT AS unpolled_highest, max(late_highest) AS late_highest
FROM client_statistics
WHERE ($since IS NULL OR window_start >= $since) AND ($until IS NULL OR window_start < $until)
  AND ($producer IS NULL OR producer_id = $producer) AND ($cluster IS NULL OR cluster_id = $cluster)
  AND of_application(producer_id)
GROUP BY 1 ORDER BY 1;

-- name: cut_off_times
-- Times when clients reached no broker: samples without one, of all samples (one per second and producer) of a row. The
-- times are found first, because few rows have any, and a sum over all rows of a long range takes seconds.
WITH cut AS (
    SELECT DISTINCT window_start FROM client_statistics
    WHERE cut_off > 0 AND ($since IS NULL OR window_start >= $since) AND ($until IS NULL OR window_start < $until)
      AND ($producer IS NULL OR producer_id = $producer)
      AND ($cluster IS NULL OR cluster_id = $cluster) AND of_application(producer_id)
)
SELECT window_start, max(resolution)::BIGINT AS seconds, sum(cut_off)::BIGINT AS cut_off, sum(samples)::BIGINT AS samples
FROM client_statistics SEMI JOIN cut USING (window_start)
WHERE ($since IS NULL OR window_start >= $since) AND ($until IS NULL OR window_start < $until)
  AND ($producer IS NULL OR producer_id = $producer)
  AND ($cluster IS NULL OR cluster_id = $cluster) AND of_application(producer_id)
GROUP BY window_start ORDER BY window_start;

-- name: broker_series
-- By window of `bucket` seconds, cluster and broker: durations, errors and state, summed over producers.
SELECT (window_start // $bucket * $bucket)::BIGINT AS window_start, cluster_id, broker_id, max(address) AS address,
       sum(samples)::BIGINT AS samples, sum(up)::BIGINT AS up, sum(down)::BIGINT AS down,
       sum(requests)::BIGINT AS requests, sum(retries)::BIGINT AS retries, sum(timeouts)::BIGINT AS timeouts,
       sum(disconnects)::BIGINT AS disconnects, sum(queue_count)::BIGINT AS queue_count, sum(queue_sum) AS queue_sum,
       sum(outbuf_count)::BIGINT AS outbuf_count, sum(outbuf_sum) AS outbuf_sum,
       sum(rtt_count)::BIGINT AS rtt_count, sum(rtt_sum) AS rtt_sum,
       sum(throttle_count)::BIGINT AS throttle_count, sum(throttle_sum) AS throttle_sum,
       max(in_flight_highest)::BIGINT AS in_flight_highest, max(queue_p99) AS queue_p99,
       max(outbuf_p99) AS outbuf_p99, max(rtt_p99) AS rtt_p99, max(throttle_highest) AS throttle_highest
FROM broker_statistics
WHERE ($since IS NULL OR window_start >= $since) AND ($until IS NULL OR window_start < $until)
  AND ($producer IS NULL OR producer_id = $producer) AND ($cluster IS NULL OR cluster_id = $cluster)
  AND of_application(producer_id)
GROUP BY 1, cluster_id, broker_id ORDER BY 1, cluster_id, broker_id;

-- name: deaths_series
-- Dead letters by window of `bucket` seconds, topic and error code, whatever their present state.
SELECT (floor(failed_at / $bucket) * $bucket)::BIGINT AS window_start, topic, code, count(*) AS count
FROM dead_letters
WHERE ($since IS NULL OR failed_at >= $since) AND ($until IS NULL OR failed_at < $until)
  AND ($topic IS NULL OR topic = $topic) AND ($producer IS NULL OR producer_id = $producer)
  AND ($application IS NULL OR application = $application)
  AND ($cluster IS NULL OR cluster_id = $cluster)
GROUP BY 1, topic, code ORDER BY 1, count DESC, topic, code;

-- name: death_times
-- When the first and the last dead letter of each topic and error code failed, whatever their present state.
SELECT topic, code, min(failed_at) AS first_at, max(failed_at) AS last_at
FROM dead_letters
WHERE ($since IS NULL OR failed_at >= $since) AND ($until IS NULL OR failed_at < $until)
  AND ($topic IS NULL OR topic = $topic) AND ($producer IS NULL OR producer_id = $producer)
  AND ($application IS NULL OR application = $application)
  AND ($cluster IS NULL OR cluster_id = $cluster)
GROUP BY topic, code;
