-- Leases of the table `leases`, each with a name. An operation's lease is in its own row: replay.sql has it.

-- name: lease_holder
-- The owner of a lease and its expiry.
SELECT owner, lease_until FROM leases WHERE name = $name;

-- name: take_lease
-- Take or renew a lease for `owner` until `until`; no row changes unless it is free, expired at `now`, or the owner's.
INSERT INTO leases (name, owner, lease_until) VALUES ($name, $owner, $until)
ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, lease_until = excluded.lease_until
WHERE leases.owner = excluded.owner OR leases.lease_until <= $now;

-- name: lease_seize
-- Take a lease from an owner observed to be dead, whatever the clock; no row if the lease has changed since.
UPDATE leases SET owner = $owner, lease_until = $until
WHERE name = $name AND owner = $held_by AND lease_until = $held_until;

-- name: lease_renew
-- Extend a lease that still belongs to the owner.
UPDATE leases SET lease_until = $until WHERE name = $name AND owner = $owner;

-- name: drop_lease
-- Release a lease that still belongs to the owner.
DELETE FROM leases WHERE name = $name AND owner = $owner;
