-- Causes of dead letters that were marked as resolved.

-- name: cause_resolutions
-- Each resolution, the earliest first, of one cause or of all. For the latest one that has not ended: the first failure since
-- (back_at, with its version back_in), the number of such dead letters, how many of them are pending, and their topics. An
-- original that was archived for its edit does not count beside it. Only an incident bundle has a back_at for the latest one in
-- the table, because it need not have the dead letter.
WITH latest AS (
    SELECT fingerprint, resolved_at, fixed_in, old_versions FROM cause_resolutions
    WHERE ended_at IS NULL AND ($fingerprint IS NULL OR fingerprint = $fingerprint)
), returned AS (
    SELECT d.fingerprint, min(d.failed_at) AS back_at, arg_min(d.application_version, d.failed_at) AS back_in,
           count(*) AS count, count(*) FILTER (d.state = 'dead') AS pending,
           list_sort(list(DISTINCT d.topic)) AS topics, any_value(d.code) AS code
    FROM dead_letters d JOIN latest r
      ON d.fingerprint = r.fingerprint AND d.failed_at > r.resolved_at
     AND (r.fixed_in = '' OR NOT list_contains(r.old_versions, coalesce(d.application_version, '')))
    WHERE d.failed_at > (SELECT min(resolved_at) FROM latest)
      AND d.message_id NOT IN (
          SELECT replaced_id FROM dead_letter_revisions WHERE replaced_id IS NOT NULL AND undone_at IS NULL)
    GROUP BY d.fingerprint
)
SELECT c.fingerprint, c.resolved_at, c.who, c.note, c.fixed_in, c.ended_at, c.ended_by,
       CASE WHEN c.ended_at IS NULL THEN least(c.back_at, r.back_at) ELSE c.back_at END AS back_at,
       CASE WHEN c.ended_at IS NULL AND (c.back_at IS NULL OR r.back_at < c.back_at) THEN r.back_in
            ELSE c.back_in END AS back_in,
       CASE WHEN c.ended_at IS NULL THEN r.count ELSE 0 END AS count,
       CASE WHEN c.ended_at IS NULL THEN r.pending ELSE 0 END AS pending,
       CASE WHEN c.ended_at IS NULL THEN r.topics END AS topics,
       CASE WHEN c.ended_at IS NULL THEN r.code END AS code
FROM cause_resolutions c LEFT JOIN returned r ON r.fingerprint = c.fingerprint AND c.ended_at IS NULL
WHERE $fingerprint IS NULL OR c.fingerprint = $fingerprint
ORDER BY c.resolved_at, c.fingerprint;

-- name: cause_versions
-- The versions that failed for a cause, and the number of its dead letters, without originals that were archived for an edit.
SELECT coalesce(application_version, '') AS version, count(*) AS count FROM dead_letters
WHERE fingerprint = $fingerprint AND message_id NOT IN (
    SELECT replaced_id FROM dead_letter_revisions WHERE replaced_id IS NOT NULL AND undone_at IS NULL)
GROUP BY ALL ORDER BY version;

-- name: cause_resolved
-- Mark a cause as resolved.
INSERT INTO cause_resolutions BY NAME
SELECT $fingerprint AS fingerprint, $now AS resolved_at, $who AS who, $origin AS origin, $note AS note,
       $fixed_in AS fixed_in, $old_versions::VARCHAR[] AS old_versions;

-- name: cause_resolution_ended
-- End the present resolution of a cause, with the failure that brought it back.
UPDATE cause_resolutions SET ended_at = $now, ended_by = $who, back_at = $back_at, back_in = $back_in
WHERE fingerprint = $fingerprint AND ended_at IS NULL;
