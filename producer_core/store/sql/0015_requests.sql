-- The approval of replays by a second person: the policy, the requests, and the starts that the policy admitted. Without a
-- row in approval_policies no replay needs an approval.

CREATE TABLE approval_policies (
    adopted_at     DOUBLE  NOT NULL,
    path           VARCHAR NOT NULL,     -- of the file that a process adopted; the latest row applies
    digest         VARCHAR NOT NULL,     -- SHA-256 of the text
    text           VARCHAR NOT NULL,     -- TOML
    who            VARCHAR NOT NULL,
    host           VARCHAR NOT NULL
);

CREATE TABLE replay_requests (
    request_id     VARCHAR NOT NULL,
    operation_id   VARCHAR NOT NULL,
    state          VARCHAR NOT NULL,     -- pending | approved | refused | withdrawn | expired | void | used
    cluster_id     VARCHAR NOT NULL,     -- the destination
    records        BIGINT  NOT NULL,     -- to send
    rule           VARCHAR NOT NULL,     -- why the policy asks for a second person
    effect         VARCHAR NOT NULL,     -- JSON: records by topic, and the choices
    plan_hash      VARCHAR NOT NULL,     -- SHA-256 of the destination, the choices and the frozen ids
    content_hash   VARCHAR NOT NULL,     -- SHA-256 of the same and of the dead letters
    rate           DOUBLE,               -- the highest approved rate; NULL: no limit
    who            VARCHAR NOT NULL,
    identity       VARCHAR NOT NULL,     -- JSON: all names of the requester, none of which may approve
    origin         VARCHAR NOT NULL,
    host           VARCHAR NOT NULL,
    reason         VARCHAR,
    requested_at   DOUBLE  NOT NULL,
    expires_at     DOUBLE  NOT NULL,
    decided_by     VARCHAR,
    decided_identity VARCHAR,            -- JSON
    decided_origin VARCHAR,
    decided_at     DOUBLE,
    decision       VARCHAR,              -- the reason of the approval or refusal
    closed_at      DOUBLE,               -- when it was used, withdrawn, expired or void
    closed_text    VARCHAR
);

-- While a policy is adopted, a runner sends the records of an operation only if it has a row here.
CREATE TABLE replay_starts (
    operation_id   VARCHAR NOT NULL,
    started_at     DOUBLE  NOT NULL,
    who            VARCHAR NOT NULL,
    person         VARCHAR NOT NULL,     -- the same for all names of one person
    records        BIGINT  NOT NULL,
    request_id     VARCHAR,              -- NULL: the policy asked for no approval
    plan_hash      VARCHAR NOT NULL,
    rate           DOUBLE
);
