-- Options and results of replays; the events of a dead letter as rows; the host of an operator's action.

ALTER TABLE operations ADD COLUMN delivery VARCHAR;          -- exactly_once | at_least_once; NULL before the start
ALTER TABLE operations ADD COLUMN canary BIGINT;             -- records settled before the others are sent; NULL or 0: none
ALTER TABLE operations ADD COLUMN stop_percent DOUBLE;       -- failure rate above which the replay stops …
ALTER TABLE operations ADD COLUMN stop_last BIGINT;          -- … among this number of latest outcomes
ALTER TABLE operations ADD COLUMN newer VARCHAR;             -- auto | skip | send: records whose key has a newer record
ALTER TABLE operations ADD COLUMN go_at_once BOOLEAN;        -- false: after the check it waits for an operator
ALTER TABLE operations ADD COLUMN checked VARCHAR;           -- JSON of replay.check.Check; NULL before the check
ALTER TABLE operations ADD COLUMN checked_at DOUBLE;
ALTER TABLE operations ADD COLUMN floors VARCHAR;            -- JSON {topic: {partition: offset}} below the records it sent
ALTER TABLE operations ADD COLUMN reason VARCHAR;            -- the reason, as the operator entered it

DROP INDEX operation_records_by_id;
ALTER TABLE operation_records ADD COLUMN flag VARCHAR;       -- from the check: too_large | newer_key | no_topic
ALTER TABLE operation_records ADD COLUMN not_before DOUBLE;  -- an earlier attempt may still arrive until then
ALTER TABLE operation_records ADD COLUMN settled_at DOUBLE;
ALTER TABLE operation_records ADD COLUMN size BIGINT;        -- bytes of key and value
CREATE INDEX operation_records_by_id ON operation_records (message_id);

-- Events of a dead letter, append-only: archived, restored, purged, revealed, edited, published.
-- Failed attempts are in its attempts, replays in operation_records.
CREATE TABLE letter_events (
    message_id     VARCHAR NOT NULL,
    happened_at    DOUBLE  NOT NULL,
    what           VARCHAR NOT NULL,
    who            VARCHAR NOT NULL,
    origin         VARCHAR NOT NULL,
    text           VARCHAR
);

ALTER TABLE audit ADD COLUMN host VARCHAR;
