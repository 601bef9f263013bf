-- Changes of one statement each.

-- name: take_lease
-- Take or renew a lease for `owner` until `until`; no row changes unless it is free, expired at `now`, or the owner's.
INSERT INTO leases (name, owner, lease_until) VALUES ($name, $owner, $until)
ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, lease_until = excluded.lease_until
WHERE leases.owner = excluded.owner OR leases.lease_until <= $now;

-- name: drop_lease
-- Release a lease that still belongs to the owner.
DELETE FROM leases WHERE name = $name AND owner = $owner;

-- name: add_audit
-- Append an operator's action. Rows are never changed or deleted.
INSERT INTO audit (acted_at, who, origin, host, action, selection, count, outcome)
VALUES ($acted_at, $who, $origin, $host, $action, $selection, $count, $outcome);

-- name: set_setting
-- Set one setting of this store; its value is JSON.
INSERT INTO settings (name, value, changed_at) VALUES ($name, $value, $now)
ON CONFLICT (name) DO UPDATE SET value = excluded.value, changed_at = excluded.changed_at;

-- name: forget_setting
-- Restore the default of one setting.
DELETE FROM settings WHERE name = $name;

-- name: name_cluster
-- Set the cluster of a producer's dead letters that were recorded before it was known.
UPDATE dead_letters SET cluster_id = $cluster WHERE producer_id = $producer AND cluster_id = '';
