-- Causes of dead letters that an operator marked as resolved, and each time that one came back. The state of a cause follows
-- from its latest row: resolved until a message fails for that cause again.
CREATE TABLE cause_resolutions (
    fingerprint  VARCHAR NOT NULL,     -- the group of dead letters
    resolved_at  DOUBLE  NOT NULL,
    who          VARCHAR NOT NULL,
    origin       VARCHAR NOT NULL,
    note         VARCHAR NOT NULL,
    fixed_in     VARCHAR NOT NULL,     -- the version with the fix; empty: every later failure means that the cause is back
    old_versions VARCHAR[] NOT NULL,   -- with fixed_in, the versions that failed before and may go on failing
    ended_at     DOUBLE,               -- when it was reopened, or resolved again after it came back
    ended_by     VARCHAR,
    back_at      DOUBLE,               -- the first failure after it, once it ended; before that, the dead letters tell
    back_in      VARCHAR               -- the version that failed then; empty: unknown
);
