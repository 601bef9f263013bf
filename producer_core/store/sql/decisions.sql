-- How long dead letters wait for a decision. `allowed`: the seconds of the objective of a topic; $every is that of all other
-- topics. A dead letter is evaluated once: when it is decided, or at its deadline if it is not decided until then. Pending dead
-- letters of clusters that no longer exist ($removed) are left out.

-- name: decision_report
-- By topic: the dead letters evaluated within ($since, $until] and those that missed the deadline, the dead letters decided in
-- that time with the quantiles of the time to their decision, and now: the pending ones, those past their deadline, the next
-- deadline and the number of deadlines within $ahead seconds, and the acceptance of the oldest one that may be on its topic.
-- The quantiles take a third of the time; they are NULL without $quantiles.
SELECT topic,
       count(*) FILTER (deadline IS NOT NULL AND evaluated_at > $since AND evaluated_at <= $until) AS evaluated,
       count(*) FILTER (deadline IS NOT NULL AND evaluated_at > $since AND evaluated_at <= $until AND missed) AS missed,
       count(*) FILTER (missed AND evaluated_at > $now - $ahead AND evaluated_at <= $now) AS missed_lately,
       count(*) FILTER (decided_at > $since AND decided_at <= $until) AS decided,
       quantile_disc(taken, 0.5) FILTER ($quantiles AND decided_at > $since AND decided_at <= $until) AS p50,
       quantile_disc(taken, 0.95) FILTER ($quantiles AND decided_at > $since AND decided_at <= $until) AS p95,
       count(*) FILTER (decided_at IS NULL) AS pending,
       count(*) FILTER (decided_at IS NULL AND deadline <= $now) AS overdue,
       min(deadline) FILTER (decided_at IS NULL AND deadline > $now) AS next_at,
       count(*) FILTER (decided_at IS NULL AND deadline > $now AND deadline <= $now + $ahead) AS due,
       min(accepted_at) FILTER (decided_at IS NULL AND doubtful) AS doubtful_at,
       list_sort(list(DISTINCT cluster_id) FILTER (decided_at IS NULL AND doubtful)) AS clusters
FROM (
    SELECT *, coalesce(decided_at > deadline, true) AS missed,
           least(coalesce(decided_at, deadline), deadline) AS evaluated_at,
           greatest(0, decided_at - first_failed_at) AS taken
    FROM (
        SELECT d.topic, d.cluster_id, d.decided_at, d.first_failed_at, d.accepted_at,
               NOT list_contains($safe::VARCHAR[], d.verdict) AS doubtful,
               d.first_failed_at + coalesce(o.allowed, $every::DOUBLE) AS deadline
        FROM dead_letter_decisions d
        LEFT JOIN (SELECT unnest($topics::VARCHAR[]) AS topic, unnest($allowed::DOUBLE[]) AS allowed) o USING (topic)
        WHERE CASE WHEN d.decided_at IS NULL THEN list_contains($removed::VARCHAR[], d.cluster_id) IS NOT TRUE
                   ELSE d.state_at > $since END
    )
)
GROUP BY topic HAVING pending > 0 OR decided > 0 OR evaluated > 0
ORDER BY topic;

-- name: operations_checked
-- What the latest dry runs found on the brokers, the latest first: BrokerCheck as JSON.
SELECT cluster_id, checked, checked_at FROM operations WHERE checked IS NOT NULL ORDER BY checked_at DESC LIMIT 50;
