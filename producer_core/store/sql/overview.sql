-- Queries of the dashboard's overview, with ranges as in queries.sql. An open page runs each of them once a second, so
-- counts answer those whose cost would grow with the history.

-- name: deaths
-- Dead letters of a range by topic, error code and group, most first, and their present state: pending, replayed (or
-- found on their topic), archived; and how many were retried before they failed.
SELECT topic, code, arg_max(fingerprint, failed_at) AS fingerprint, count(*) AS count, max(failed_at) AS last,
       count(*) FILTER (WHERE state IN ('dead', 'replaying')) AS waiting,
       count(*) FILTER (WHERE state IN ('replayed', 'landed')) AS cured,
       count(*) FILTER (WHERE state IN ('archived', 'purged')) AS aside,
       count(*) FILTER (WHERE attempts - replay_count > 1) AS retried  -- a failed replay is an attempt too
FROM dead_letters
WHERE ($since IS NULL OR failed_at >= $since) AND ($until IS NULL OR failed_at < $until)
  AND ($topic IS NULL OR topic = $topic) AND ($producer IS NULL OR producer_id = $producer)
  AND ($cluster IS NULL OR cluster_id = $cluster) AND ($application IS NULL OR application = $application)
GROUP BY topic, code ORDER BY count DESC, topic, code LIMIT coalesce($limit, 50);

-- name: deaths_without_letters
-- Dead letters of producers without any row here, by topic and producer: their dead letters are in their own stores.
-- Statistics arrive up to two seconds late.
WITH died AS (
    SELECT topic, producer_id, sum(dead) AS dead FROM statistics
    WHERE dead > 0 AND ($since IS NULL OR window_start >= $since) AND ($until IS NULL OR window_start < $until)
      AND ($topic IS NULL OR topic = $topic) AND ($producer IS NULL OR producer_id = $producer)
      AND ($cluster IS NULL OR cluster_id = $cluster) AND of_application(producer_id)
    GROUP BY ALL
), lettered AS (
    SELECT DISTINCT topic, producer_id FROM dead_letters
    WHERE ($since IS NULL OR failed_at >= $since - 2) AND ($until IS NULL OR failed_at < $until)
)
SELECT topic, producer_id, dead::BIGINT AS dead FROM died ANTI JOIN lettered USING (topic, producer_id)
ORDER BY topic, producer_id;

-- name: letters_by_producer
-- The number of dead letters of a range per producer, whatever their present state.
SELECT producer_id, count(*) AS dead FROM dead_letters
WHERE ($since IS NULL OR failed_at >= $since) AND ($until IS NULL OR failed_at < $until)
  AND ($topic IS NULL OR topic = $topic) AND ($producer IS NULL OR producer_id = $producer)
  AND ($cluster IS NULL OR cluster_id = $cluster) AND ($application IS NULL OR application = $application)
GROUP BY producer_id ORDER BY producer_id;

-- name: delivered_since
-- Messages acknowledged per topic, each since its own time; `since` is the earliest of these.
WITH asked AS (SELECT unnest($topics::VARCHAR[]) AS topic, unnest($lasts::DOUBLE[]) AS last)
SELECT topic, sum(acknowledged)::BIGINT AS acknowledged FROM statistics JOIN asked USING (topic)
WHERE window_start >= $since AND window_start > last AND ($producer IS NULL OR producer_id = $producer)
  AND ($cluster IS NULL OR cluster_id = $cluster) AND of_application(producer_id)
GROUP BY topic ORDER BY topic;

-- name: overview_waiting
-- Pending dead letters by topic, error code and verdict, from the counts. Those of clusters that no longer exist ($removed)
-- count only if the cluster is selected.
SELECT topic, code, verdict, sum(n)::BIGINT AS count
FROM dead_letter_counts
WHERE state = 'dead' AND ($topic IS NULL OR topic = $topic)
  AND CASE WHEN $cluster IS NULL THEN list_contains($removed::VARCHAR[], cluster_id) IS NOT TRUE
           ELSE cluster_id = $cluster END
GROUP BY topic, code, verdict HAVING sum(n) > 0 ORDER BY count DESC, topic, code, verdict;

-- name: overview_waiting_of
-- The same for one producer or application, which the counts do not contain: from a scan of the dead letters.
SELECT topic, code, verdict, count(*) AS count
FROM dead_letters
WHERE state = 'dead' AND ($topic IS NULL OR topic = $topic) AND ($producer IS NULL OR producer_id = $producer)
  AND CASE WHEN $cluster IS NULL THEN list_contains($removed::VARCHAR[], cluster_id) IS NOT TRUE
           ELSE cluster_id = $cluster END
  AND ($application IS NULL OR application = $application)
GROUP BY topic, code, verdict ORDER BY count DESC, topic, code, verdict;

-- name: overview_missing
-- Windows missing in the store, of producers seen since $since, although later ones of the same producer arrived.
-- A gap of millions is not counted: a producer that could not continue its numbering started far above it.
SELECT coalesce(sum(missing), 0)::BIGINT AS windows, count(DISTINCT producer_id) AS producers
FROM (SELECT producer_id,
             first_batch - 1 - lag(last_batch) OVER (PARTITION BY producer_id ORDER BY first_batch) AS missing
      FROM merged_batches
      WHERE ($producer IS NULL OR producer_id = $producer)
        AND producer_id IN (SELECT producer_id FROM producers
                            WHERE seen_at >= $since AND ($cluster IS NULL OR cluster_id = $cluster)
                              AND ($application IS NULL OR application = $application)))
WHERE missing BETWEEN 1 AND 1000000;

-- name: overview_clients
-- Client samples of a range: their number, those without any broker, and the highest queue fill.
SELECT coalesce(sum(samples), 0)::BIGINT AS samples, coalesce(sum(cut_off), 0)::BIGINT AS cut_off,
       coalesce(max(fill_highest), 0)::DOUBLE AS fill_highest
FROM client_statistics
WHERE ($since IS NULL OR window_start >= $since) AND ($until IS NULL OR window_start < $until)
  AND ($producer IS NULL OR producer_id = $producer)
  AND ($cluster IS NULL OR cluster_id = $cluster) AND of_application(producer_id);

-- name: producer_starts
-- How many producers started within a range, by spans of `bucket` seconds, latest first, each with its first start. A
-- dashboard that runs replays is left out.
SELECT min(started_at) AS started_at, count(*) AS count FROM producers
WHERE ($since IS NULL OR started_at >= $since) AND ($until IS NULL OR started_at < $until)
  AND ($producer IS NULL OR producer_id = $producer)
  AND ($cluster IS NULL OR cluster_id = $cluster) AND of_application(producer_id)
  AND client_id <> 'producer-core-dashboard'
GROUP BY floor(started_at / $bucket) ORDER BY 1 DESC;
