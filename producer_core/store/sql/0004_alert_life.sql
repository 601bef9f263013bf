-- The state of an alert between evaluations, its notifications, and the notifications that are due.

ALTER TABLE alerts ADD COLUMN fired_at DOUBLE;         -- when it started firing; NULL while pending
ALTER TABLE alerts ADD COLUMN since DOUBLE;            -- pending: the condition began; firing: the condition ended
ALTER TABLE alerts ADD COLUMN told_by VARCHAR;         -- the producer that reported it; NULL: a rule was evaluated
ALTER TABLE alerts ADD COLUMN muted_by VARCHAR;        -- why there is no notification; NULL: notified
ALTER TABLE alerts ADD COLUMN telling VARCHAR;         -- NULL: open | begin | joined (a recent episode) | none
ALTER TABLE alerts ADD COLUMN telling_end BOOLEAN;     -- NULL: open; false: continued in a later episode, or none
UPDATE alerts SET fired_at = started_at, told_by = '' WHERE rule <> 'producer_gone';
UPDATE alerts SET fired_at = started_at WHERE rule = 'producer_gone';
UPDATE alerts SET telling = 'none', telling_end = false WHERE state = 'resolved';

-- Notifications of a route and their delivery. One row per alert and status: a single sender delivers it at most once,
-- several senders at least once. Rows contain no address and no secret.
CREATE TABLE alert_outbox (
    route          VARCHAR NOT NULL,
    alert_id       VARCHAR NOT NULL,
    status         VARCHAR NOT NULL,     -- firing | resolved
    queued_at      DOUBLE  NOT NULL,
    attempts       INTEGER NOT NULL,
    next_at        DOUBLE  NOT NULL,
    settled_at     DOUBLE,               -- delivered, or given up
    outcome        VARCHAR,              -- told | given up
    answer         VARCHAR               -- of the last attempt, without address and secrets
);

CREATE TABLE alert_routes (
    name           VARCHAR PRIMARY KEY,
    kind           VARCHAR NOT NULL,     -- webhook | callback
    known_at       DOUBLE  NOT NULL,     -- alerts that ended before this time are not notified
    told_at        DOUBLE,               -- the last successful delivery
    failing_since  DOUBLE,
    answer         VARCHAR,
    heartbeat_at   DOUBLE
);
