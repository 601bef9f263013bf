-- The first schema. Times are seconds since 1970 (UTC): BIGINT for windows, DOUBLE for points in time.

CREATE TABLE producers (
    producer_id    VARCHAR PRIMARY KEY,  -- the session, a UUIDv7
    cluster_id     VARCHAR NOT NULL,
    client_id      VARCHAR NOT NULL,
    host           VARCHAR NOT NULL,
    pid            BIGINT  NOT NULL,
    version        VARCHAR NOT NULL,
    started_at     DOUBLE  NOT NULL,
    seen_at        DOUBLE  NOT NULL,     -- last heartbeat of the recorder, once a second
    closed_at      DOUBLE,               -- set by close(); NULL with an old seen_at: the process was killed
    connected      BOOLEAN NOT NULL,
    connection_error VARCHAR,            -- the last one; NULL if none since the connection
    pending        BIGINT  NOT NULL,     -- accepted and not settled
    waiting_retry  BIGINT  NOT NULL,
    queue_messages BIGINT  NOT NULL,     -- librdkafka's msg_cnt
    queue_limit    BIGINT  NOT NULL,     -- librdkafka's msg_max
    memory_bytes   BIGINT  NOT NULL,     -- resident set of the process
    memory_limit   BIGINT,               -- the container's or the machine's
    runs_replays   BOOLEAN NOT NULL,     -- whether it runs planned replays
    delivery       VARCHAR NOT NULL,     -- at_least_once | exactly_once
    settings       VARCHAR NOT NULL      -- JSON, secrets masked
);

CREATE TABLE statistics (
    resolution     INTEGER NOT NULL,     -- seconds a row covers: 1, 60 or 3600
    window_start   BIGINT  NOT NULL,
    cluster_id     VARCHAR NOT NULL,
    producer_id    VARCHAR NOT NULL,
    topic          VARCHAR NOT NULL,
    accepted       BIGINT  NOT NULL,     -- send_message returned an id
    acknowledged   BIGINT  NOT NULL,
    dead           BIGINT  NOT NULL,
    failed_attempts BIGINT NOT NULL,     -- delivery reports with an error
    retried        BIGINT  NOT NULL,     -- sent again by the producer after a failed attempt
    retry_successes BIGINT NOT NULL,     -- acknowledged after such a retry
    duplicates     BIGINT  NOT NULL,     -- suppressed
    possible_duplicates BIGINT NOT NULL, -- sent again after an ambiguous outcome
    bytes          BIGINT  NOT NULL,     -- of acknowledged values
    latency_sum    DOUBLE  NOT NULL      -- seconds, of acknowledged messages
);

CREATE TABLE latencies (
    resolution     INTEGER NOT NULL,
    window_start   BIGINT  NOT NULL,
    cluster_id     VARCHAR NOT NULL,
    producer_id    VARCHAR NOT NULL,
    topic          VARCHAR NOT NULL,
    bucket         INTEGER NOT NULL,     -- producer_core.metrics.histogram
    count          BIGINT  NOT NULL
);

CREATE TABLE errors (
    resolution     INTEGER NOT NULL,
    window_start   BIGINT  NOT NULL,
    cluster_id     VARCHAR NOT NULL,
    producer_id    VARCHAR NOT NULL,
    topic          VARCHAR NOT NULL,
    code           VARCHAR NOT NULL,     -- librdkafka's name, for example MSG_SIZE_TOO_LARGE
    kind           VARCHAR NOT NULL,
    count          BIGINT  NOT NULL
);

-- Recorder batches merged into this store, as closed ranges: merging a batch twice adds nothing.
CREATE TABLE merged_batches (
    producer_id    VARCHAR NOT NULL,
    first_batch    BIGINT  NOT NULL,
    last_batch     BIGINT  NOT NULL
);

-- Micro-batches that a pipeline's query has committed here.
CREATE TABLE pipeline_progress (
    query_id       VARCHAR NOT NULL,
    batch_id       BIGINT  NOT NULL,
    committed_at   DOUBLE  NOT NULL,
    PRIMARY KEY (query_id, batch_id)
);

CREATE TABLE dead_letters (
    message_id     VARCHAR NOT NULL,     -- uuid-seq; one row per message, however often it fails
    cluster_id     VARCHAR NOT NULL,
    producer_id    VARCHAR NOT NULL,
    topic          VARCHAR NOT NULL,
    partition      INTEGER,              -- the requested one
    key            BLOB,
    value_size     BIGINT,               -- NULL for a tombstone
    state          VARCHAR NOT NULL,     -- dead | replaying | replayed | landed | archived | purged
    quarantined    BOOLEAN NOT NULL,
    replayable     BOOLEAN NOT NULL,
    verdict        VARCHAR NOT NULL,
    verdict_reason VARCHAR NOT NULL,
    kind           VARCHAR NOT NULL,
    code           VARCHAR NOT NULL,
    error_text     VARCHAR NOT NULL,
    fingerprint    VARCHAR NOT NULL,
    attempts       INTEGER NOT NULL,
    accepted_at    DOUBLE  NOT NULL,
    failed_at      DOUBLE  NOT NULL,     -- when it last became a dead letter
    source         VARCHAR,
    host           VARCHAR NOT NULL,
    version        VARCHAR NOT NULL,
    replay_count   INTEGER NOT NULL,
    operation_id   VARCHAR,              -- the replay that holds it, or held it last
    state_at       DOUBLE  NOT NULL,     -- when the state last changed
    landed_partition INTEGER,
    landed_offset  BIGINT
);

CREATE TABLE dead_letter_bodies (
    message_id     VARCHAR NOT NULL,
    value          BLOB,
    headers        VARCHAR NOT NULL,     -- JSON: [[name, base64 or null], ...] in order
    timestamp_ms   BIGINT,
    attempts       VARCHAR NOT NULL      -- JSON: [[failed_at, code, text], ...]
);

CREATE TABLE operations (
    operation_id   VARCHAR PRIMARY KEY,
    cluster_id     VARCHAR NOT NULL,
    selection      VARCHAR NOT NULL,     -- JSON of the DeadLetterFilter, or of the selected ids
    state          VARCHAR NOT NULL,     -- planned | running | paused | done | stopped | cancelled | failed
    who            VARCHAR NOT NULL,
    origin         VARCHAR NOT NULL,     -- dashboard | cli | python | notebook
    created_at     DOUBLE  NOT NULL,
    started_at     DOUBLE,
    finished_at    DOUBLE,
    total          BIGINT  NOT NULL,
    acknowledged   BIGINT  NOT NULL,
    landed         BIGINT  NOT NULL,
    failed_again   BIGINT  NOT NULL,
    skipped        BIGINT  NOT NULL,
    rate           DOUBLE,               -- messages per second; NULL: no limit
    owner          VARCHAR,              -- producer_id or "cli:<pid>@<host>"
    lease_until    DOUBLE,
    message        VARCHAR               -- the latest status, as a sentence
);

CREATE TABLE operation_records (
    operation_id   VARCHAR NOT NULL,
    ord            BIGINT  NOT NULL,
    message_id     VARCHAR NOT NULL,
    state          VARCHAR NOT NULL,     -- pending | claimed | acknowledged | landed | failed | skipped
    text           VARCHAR               -- the reason for a failure or a skip
);

CREATE TABLE alerts (
    alert_id       VARCHAR NOT NULL,     -- stable for one episode: rule, subject and start
    rule           VARCHAR NOT NULL,
    severity       VARCHAR NOT NULL,     -- info | warning | critical
    subject        VARCHAR NOT NULL,     -- the producer, topic or store that it concerns
    state          VARCHAR NOT NULL,     -- pending | firing | resolved
    value          DOUBLE,
    threshold      DOUBLE,
    text           VARCHAR NOT NULL,
    advice         VARCHAR NOT NULL,
    started_at     DOUBLE  NOT NULL,
    changed_at     DOUBLE  NOT NULL,
    resolved_at    DOUBLE,
    acknowledged_by VARCHAR,
    acknowledged_at DOUBLE
);

CREATE TABLE silences (
    rule           VARCHAR NOT NULL,
    subject        VARCHAR NOT NULL,     -- '' silences every subject of the rule
    until          DOUBLE  NOT NULL,
    who            VARCHAR NOT NULL,
    why            VARCHAR NOT NULL,
    created_at     DOUBLE  NOT NULL
);

CREATE TABLE leases (
    name           VARCHAR PRIMARY KEY,
    owner          VARCHAR NOT NULL,
    lease_until    DOUBLE  NOT NULL
);

CREATE TABLE notices (
    noticed_at     DOUBLE  NOT NULL,
    cluster_id     VARCHAR NOT NULL,
    producer_id    VARCHAR NOT NULL,
    kind           VARCHAR NOT NULL,     -- connection_lost, connected, fatal_error, epoch_rise, ...
    severity       VARCHAR NOT NULL,
    text           VARCHAR NOT NULL,
    details        VARCHAR NOT NULL      -- JSON
);

CREATE TABLE audit (
    acted_at       DOUBLE  NOT NULL,
    who            VARCHAR NOT NULL,
    origin         VARCHAR NOT NULL,
    action         VARCHAR NOT NULL,     -- replay, archive, restore, purge, acknowledge, silence, prune, ...
    selection      VARCHAR NOT NULL,     -- JSON
    count          BIGINT  NOT NULL,
    outcome        VARCHAR NOT NULL
);

-- Views for users' own queries.
CREATE VIEW message_statistics AS
    SELECT to_timestamp(window_start) AS window_start, resolution AS window_seconds, cluster_id, producer_id, topic,
           accepted, acknowledged, dead, failed_attempts, retried, duplicates, possible_duplicates, bytes
    FROM statistics;

-- Settings of this store by name. A missing row stands for the default.
CREATE TABLE settings (
    name           VARCHAR PRIMARY KEY,  -- keep_seconds, keep_minutes, ...
    value          VARCHAR NOT NULL,     -- JSON
    changed_at     DOUBLE  NOT NULL
);
