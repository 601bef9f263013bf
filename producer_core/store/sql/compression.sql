-- How much each codec compresses the payloads of a topic. Ranges are as in queries.sql, of the time of the last sample.

-- name: compression_by_topic
-- The sums of each topic and of each codec in use, over the producers that sampled it; the highest rate of one of them.
SELECT topic, codec, max(measured_at) AS measured_at, max(bytes_per_second) AS bytes_per_second,
       sum(samples)::BIGINT AS samples, sum(messages)::BIGINT AS messages, sum(bytes)::BIGINT AS bytes,
       sum(lz4_bytes)::BIGINT AS lz4_bytes, sum(zstd_bytes)::BIGINT AS zstd_bytes,
       sum(lz4_seconds) AS lz4_seconds, sum(zstd_seconds) AS zstd_seconds
FROM compression_samples
WHERE ($since IS NULL OR measured_at >= $since) AND ($until IS NULL OR measured_at < $until)
  AND ($topic IS NULL OR topic = $topic) AND ($producer IS NULL OR producer_id = $producer)
  AND ($cluster IS NULL OR cluster_id = $cluster) AND of_application(producer_id)
GROUP BY topic, codec ORDER BY topic, codec;

-- name: compression_of_application
-- The sums of each topic over the producers of an application that were seen last, at most ten; the highest rate of one.
SELECT topic, max(bytes_per_second) AS bytes_per_second, sum(samples)::BIGINT AS samples,
       sum(messages)::BIGINT AS messages, sum(bytes)::BIGINT AS bytes, sum(lz4_bytes)::BIGINT AS lz4_bytes,
       sum(zstd_bytes)::BIGINT AS zstd_bytes, sum(lz4_seconds) AS lz4_seconds, sum(zstd_seconds) AS zstd_seconds
FROM compression_samples
WHERE producer_id IN (SELECT producer_id FROM producers
                      WHERE application = $name
                        AND producer_id IN (SELECT producer_id FROM compression_samples)
                      ORDER BY seen_at DESC LIMIT 10)
GROUP BY topic ORDER BY topic;
