-- What a replay was told to do and what it saw; the life of a letter as rows; from which host an operator acted.

ALTER TABLE operations ADD COLUMN delivery VARCHAR;          -- exactly_once | at_least_once; NULL until it began
ALTER TABLE operations ADD COLUMN canary BIGINT;             -- records settled before the rest goes; NULL or 0: none
ALTER TABLE operations ADD COLUMN stop_percent DOUBLE;       -- it stops itself above this share of failures …
ALTER TABLE operations ADD COLUMN stop_last BIGINT;          -- … among the last so many outcomes
ALTER TABLE operations ADD COLUMN newer VARCHAR;             -- auto | skip | send: keys acknowledged since
ALTER TABLE operations ADD COLUMN go_at_once BOOLEAN;        -- false: after the check it waits for a person
ALTER TABLE operations ADD COLUMN checked VARCHAR;           -- JSON of replay.check.Check; NULL until it was done
ALTER TABLE operations ADD COLUMN checked_at DOUBLE;
ALTER TABLE operations ADD COLUMN floors VARCHAR;            -- JSON {topic: {partition: offset}} below what it sent
ALTER TABLE operations ADD COLUMN reason VARCHAR;            -- why, in the operator's words

DROP INDEX operation_records_by_id;
ALTER TABLE operation_records ADD COLUMN flag VARCHAR;       -- from the check: too_large | newer_key | no_topic
ALTER TABLE operation_records ADD COLUMN not_before DOUBLE;  -- an old attempt of it may arrive until then
ALTER TABLE operation_records ADD COLUMN settled_at DOUBLE;
ALTER TABLE operation_records ADD COLUMN size BIGINT;        -- bytes of key and value
CREATE INDEX operation_records_by_id ON operation_records (message_id);

-- What happened to a letter after its death, appended only: archived, restored, purged, revealed, edited, published.
-- Deaths are in its attempts, replays in operation_records.
CREATE TABLE letter_events (
    message_id     VARCHAR NOT NULL,
    happened_at    DOUBLE  NOT NULL,
    what           VARCHAR NOT NULL,
    who            VARCHAR NOT NULL,
    origin         VARCHAR NOT NULL,
    text           VARCHAR
);

ALTER TABLE audit ADD COLUMN host VARCHAR;
