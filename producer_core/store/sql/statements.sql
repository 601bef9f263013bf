-- Changes of one statement each.

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
