-- How the store's producers reach their clusters, for the settings page.

-- name: clients_of_clusters
-- The masked client settings of the producer that was heard of last, of each cluster; the latest cluster first.
SELECT cluster_id, arg_max(settings, seen_at) AS settings, max(seen_at) AS seen_at FROM producers
GROUP BY cluster_id ORDER BY seen_at DESC;
