-- Who asked for a replay that starts by itself after its check: the runner that starts it runs as another user.

CREATE TABLE replay_requesters (
    operation_id   VARCHAR NOT NULL,
    identity       VARCHAR NOT NULL      -- JSON: all names of the requester
);
