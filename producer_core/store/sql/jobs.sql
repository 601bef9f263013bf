-- The pipeline's jobs: their state, progress and last heartbeat.

-- name: begin_job
-- Start a job of this name; the time of its last success is kept.
INSERT INTO pipeline_jobs (name, kind, host, pid, started_at, seen_at, state)
VALUES ($name, $kind, $host, $pid, $started, $now, 'running')
ON CONFLICT (name) DO UPDATE SET kind = excluded.kind, host = excluded.host, pid = excluded.pid,
    started_at = excluded.started_at, seen_at = excluded.seen_at, ended_at = NULL, state = 'running',
    records_done = NULL, records_total = NULL, lag = NULL, message = NULL, details = NULL;

-- name: tell_job
-- Record a job's progress, for the run that started it.
UPDATE pipeline_jobs SET seen_at = $now, records_done = $records_done, records_total = $records_total, lag = $lag,
    last_success_at = coalesce($last_success_at, last_success_at), message = $message, details = $details
WHERE name = $name AND pid = $pid AND started_at = $started;

-- name: end_job
-- Record the end of a job: state is done or failed.
UPDATE pipeline_jobs SET seen_at = $now, ended_at = $now, state = $state, records_done = $records_done,
    records_total = $records_total, lag = $lag, last_success_at = coalesce($last_success_at, last_success_at),
    message = $message, details = $details
WHERE name = $name AND pid = $pid AND started_at = $started;

-- name: jobs
-- The jobs run on this store, running ones first, then the newest; at most 200.
SELECT name, kind, host, pid, started_at, seen_at, ended_at, state, records_done, records_total, lag,
       last_success_at, message, details
FROM pipeline_jobs ORDER BY state <> 'running', started_at DESC, name LIMIT 200;
