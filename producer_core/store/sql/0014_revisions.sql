-- Edits of dead letters. The rows of an edited dead letter keep the original: a revision has the bytes that a replay sends
-- instead, and the patch that made them.

CREATE TABLE dead_letter_revisions (
    message_id     VARCHAR NOT NULL,
    number         INTEGER NOT NULL,     -- from 1 for each dead letter; the highest one that is not undone is sent
    made_at        DOUBLE  NOT NULL,
    who            VARCHAR NOT NULL,
    origin         VARCHAR NOT NULL,     -- dashboard | cli | python | notebook
    reason         VARCHAR NOT NULL,
    patch          VARCHAR NOT NULL,     -- JSON of dlq.revisions.patch.Patch, against the original value and headers
    key            BLOB,
    value          BLOB,                 -- the bytes to send; NULL for a tombstone
    headers        VARCHAR NOT NULL,     -- as in dead_letter_bodies
    schema_id      VARCHAR,              -- the schema that the value was written with; NULL without one
    replaced_id    VARCHAR,              -- the archived dead letter that this one was made from by its first revision
    made_replayable BOOLEAN NOT NULL,    -- whether it was malformed input before
    undone_at      DOUBLE,
    undone_by      VARCHAR
);

-- The revision of a record that is not sent yet; it is then claimed by itself, never as a part of a wave.
DROP INDEX operation_records_by_id;
ALTER TABLE operation_records ADD COLUMN revision INTEGER;
CREATE INDEX operation_records_by_id ON operation_records (message_id);

-- Edits in a page that are not kept as revisions yet: one for each dead letter and user.
CREATE TABLE edit_drafts (
    message_id VARCHAR NOT NULL,
    who        VARCHAR NOT NULL,
    base       INTEGER NOT NULL,         -- the number of the revision that was shown at the start, 0 for the original
    value      VARCHAR NOT NULL,         -- the text as the user typed it; it need not be JSON yet
    headers    VARCHAR NOT NULL,
    key        VARCHAR NOT NULL,
    reason     VARCHAR NOT NULL,
    saved_at   DOUBLE  NOT NULL,
    client     VARCHAR NOT NULL,         -- the browser page that reported the texts, and the number of its report
    report     BIGINT  NOT NULL
);
