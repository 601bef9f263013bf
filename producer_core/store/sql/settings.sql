-- Connection settings of the store's producers, for the settings page.

-- name: clients_of_clusters
-- Per cluster, the masked client settings of the most recently seen producer; the latest cluster first.
SELECT cluster_id, arg_max(settings, seen_at) AS settings, max(seen_at) AS seen_at FROM producers
GROUP BY cluster_id ORDER BY seen_at DESC;
