-- A replay's treatment of records whose outcome stays inconclusive after the probe.

ALTER TABLE operations ADD COLUMN inconclusive VARCHAR;      -- keep | send; NULL: keep
