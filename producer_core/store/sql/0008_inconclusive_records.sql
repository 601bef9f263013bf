-- What a replay does with records whose outcome stays inconclusive after they were looked for.

ALTER TABLE operations ADD COLUMN inconclusive VARCHAR;      -- keep | send; NULL: keep
