-- The pipeline's jobs: what runs, how far it is, and when it last worked.

-- name: begin_job
-- A job of this name begins; when it last succeeded is kept.
INSERT INTO pipeline_jobs (name, kind, host, pid, started_at, seen_at, state)
VALUES ($name, $kind, $host, $pid, $started, $now, 'running')
ON CONFLICT (name) DO UPDATE SET kind = excluded.kind, host = excluded.host, pid = excluded.pid,
    started_at = excluded.started_at, seen_at = excluded.seen_at, ended_at = NULL, state = 'running',
    records_done = NULL, records_total = NULL, lag = NULL, message = NULL, details = NULL;

-- name: tell_job
-- How far it is, said by the job that began it.
UPDATE pipeline_jobs SET seen_at = $now, records_done = $records_done, records_total = $records_total, lag = $lag,
    last_success_at = coalesce($last_success_at, last_success_at), message = $message, details = $details
WHERE name = $name AND pid = $pid AND started_at = $started;

-- name: end_job
-- It ended: state is done or failed.
UPDATE pipeline_jobs SET seen_at = $now, ended_at = $now, state = $state, records_done = $records_done,
    records_total = $records_total, lag = $lag, last_success_at = coalesce($last_success_at, last_success_at),
    message = $message, details = $details
WHERE name = $name AND pid = $pid AND started_at = $started;

-- name: jobs
-- The jobs that were run on this store, running ones first, then the newest; no more than 200.
SELECT name, kind, host, pid, started_at, seen_at, ended_at, state, records_done, records_total, lag,
       last_success_at, message, details
FROM pipeline_jobs ORDER BY state <> 'running', started_at DESC, name LIMIT 200;
