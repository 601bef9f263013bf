-- The life of an alert between evaluations, whom it was told to, and what still has to be told.

ALTER TABLE alerts ADD COLUMN fired_at DOUBLE;         -- when people were first concerned; NULL while pending
ALTER TABLE alerts ADD COLUMN since DOUBLE;            -- pending: the condition holds; firing: it is gone since then
ALTER TABLE alerts ADD COLUMN told_by VARCHAR;         -- the producer that says so itself; NULL: a rule was evaluated
ALTER TABLE alerts ADD COLUMN muted_by VARCHAR;        -- why nobody is told, in words; NULL: people are told
ALTER TABLE alerts ADD COLUMN telling VARCHAR;         -- NULL: open | begin | joined (an episode just before) | none
ALTER TABLE alerts ADD COLUMN telling_end BOOLEAN;     -- NULL: open; false: it went on in a later episode, or none
UPDATE alerts SET fired_at = started_at, told_by = '' WHERE rule <> 'producer_gone';
UPDATE alerts SET fired_at = started_at WHERE rule = 'producer_gone';
UPDATE alerts SET telling = 'none', telling_end = false WHERE state = 'resolved';

-- What a route was asked to say, and whether the receiver has it. One row an alert and status: never said twice
-- by one sender, at least once by all. No address and no secret is ever in here.
CREATE TABLE alert_outbox (
    route          VARCHAR NOT NULL,
    alert_id       VARCHAR NOT NULL,
    status         VARCHAR NOT NULL,     -- firing | resolved
    queued_at      DOUBLE  NOT NULL,
    attempts       INTEGER NOT NULL,
    next_at        DOUBLE  NOT NULL,
    settled_at     DOUBLE,               -- told, or given up
    outcome        VARCHAR,              -- told | given up
    answer         VARCHAR               -- of the last attempt, without address and secrets
);

CREATE TABLE alert_routes (
    name           VARCHAR PRIMARY KEY,
    kind           VARCHAR NOT NULL,     -- webhook | callback
    known_at       DOUBLE  NOT NULL,     -- what ended before is not told
    told_at        DOUBLE,               -- the last time that the receiver took something
    failing_since  DOUBLE,
    answer         VARCHAR,
    heartbeat_at   DOUBLE
);
