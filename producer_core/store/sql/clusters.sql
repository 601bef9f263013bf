-- The clusters of a store, and those that no longer exist.

-- name: embedded_clusters_ended
-- Embedded brokers with pending dead letters and without an open producer that was seen since.
SELECT cluster_id FROM dead_letter_counts
WHERE state = 'dead' AND starts_with(cluster_id, $prefix)
  AND cluster_id NOT IN (SELECT cluster_id FROM producers WHERE closed_at IS NULL AND seen_at > $alive_since)
GROUP BY cluster_id HAVING sum(n) > 0;

-- name: clusters_seen_since
-- Those of the marked clusters of which a producer was seen after the mark.
SELECT DISTINCT cluster_id FROM producers
JOIN (SELECT unnest($clusters::VARCHAR[]) AS cluster_id, unnest($times::DOUBLE[]) AS marked_at) USING (cluster_id)
WHERE seen_at > marked_at ORDER BY cluster_id;

-- name: cluster_states
-- Each cluster with producers or pending dead letters: their number, the last heartbeat and the producers running now.
SELECT cluster_id, coalesce(d.pending, 0)::BIGINT AS pending, p.seen_at, coalesce(p.running, 0)::BIGINT AS running
FROM (SELECT cluster_id, sum(n) AS pending FROM dead_letter_counts WHERE state = 'dead' GROUP BY cluster_id
      HAVING sum(n) > 0) d
FULL JOIN (SELECT cluster_id, max(seen_at) AS seen_at,
                  count(*) FILTER (closed_at IS NULL AND seen_at > $alive_since) AS running
           FROM producers GROUP BY cluster_id) p USING (cluster_id)
WHERE cluster_id <> ''
ORDER BY pending DESC, seen_at DESC NULLS LAST, cluster_id;
