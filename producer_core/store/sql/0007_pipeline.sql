-- The fleet's pipeline: ledgers of acknowledged messages, jobs, audits and their findings.

-- Acknowledged messages as additive rows: one per batch, session, topic, partition and window of sequences.
-- Only if a producer keeps its ledger in its store; docs/reference/telemetry.md has the formulas.
CREATE TABLE ledger (
    producer_id    VARCHAR NOT NULL,     -- the ledger's producer: (producer_id, batch) is unique
    batch          BIGINT  NOT NULL,     -- its batch, without gaps: a missing number is a gap in the ledger
    session        VARCHAR NOT NULL,     -- of the message ids; a recovered or replayed message keeps its own
    cluster_id     VARCHAR NOT NULL,
    topic          VARCHAR NOT NULL,
    partition      INTEGER NOT NULL,
    first_window   BIGINT  NOT NULL,     -- sequence // 4096
    count          BIGINT  NOT NULL,     -- acknowledgements
    sum_seq        BIGINT  NOT NULL,     -- sum of sequence % 4096
    fp             BIGINT,               -- sum of (sequence % 4096 + 1) * (offset % 16777213); NULL: offsets unknown
    late           BIGINT  NOT NULL,     -- acknowledged after a higher sequence of this session and partition
    off_min        BIGINT  NOT NULL,     -- -1 and -1: acknowledged at an unknown offset
    off_max        BIGINT  NOT NULL,
    seqs           BIGINT[] NOT NULL,    -- in the order of offsets: the first sequence, then differences
    offs           BIGINT[] NOT NULL,    -- likewise; empty if offsets are unknown
    written_at     DOUBLE  NOT NULL,     -- by the producer
    merged_at      DOUBLE  NOT NULL      -- into this store; later if the store was unavailable
);

-- Messages given up, with the verdict at that time.
CREATE TABLE ledger_given_up (
    producer_id    VARCHAR NOT NULL,
    batch          BIGINT  NOT NULL,
    session        VARCHAR NOT NULL,
    seq            BIGINT  NOT NULL,
    topic          VARCHAR NOT NULL,
    code           VARCHAR NOT NULL,
    verdict        VARCHAR NOT NULL,
    given_up_at    DOUBLE  NOT NULL,
    merged_at      DOUBLE  NOT NULL
);

-- Jobs of `producer-core pipeline`, one row per job, for the Fleet page.
CREATE TABLE pipeline_jobs (
    name           VARCHAR PRIMARY KEY,
    kind           VARCHAR NOT NULL,     -- telemetry | integrity | reprocess
    host           VARCHAR NOT NULL,
    pid            BIGINT  NOT NULL,
    started_at     DOUBLE  NOT NULL,
    seen_at        DOUBLE  NOT NULL,     -- the last heartbeat
    ended_at       DOUBLE,
    state          VARCHAR NOT NULL,     -- running | done | failed
    records_done   BIGINT,
    records_total  BIGINT,               -- NULL: unknown
    lag            BIGINT,               -- records on the topic that are not read yet
    last_success_at DOUBLE,
    message        VARCHAR,              -- the latest status, as a sentence
    details        VARCHAR               -- JSON
);

CREATE TABLE audits (
    audit_id       VARCHAR PRIMARY KEY,
    topic          VARCHAR NOT NULL,
    cluster_id     VARCHAR NOT NULL,
    started_at     DOUBLE  NOT NULL,
    seen_at        DOUBLE  NOT NULL,     -- the last heartbeat; a killed audit stays `running`
    finished_at    DOUBLE,
    state          VARCHAR NOT NULL,     -- running | done | failed
    isolation      VARCHAR NOT NULL,     -- read_committed | read_uncommitted
    since          DOUBLE,
    until          DOUBLE,
    ranges         VARCHAR,              -- JSON: {partition: [start, end, low watermark, last stable offset]}
    records        BIGINT,               -- read
    ours           BIGINT,               -- with a message id
    foreign_records BIGINT,              -- without a message id: counted only
    acknowledged   BIGINT,               -- ledger entries within the range
    lost           BIGINT,
    duplicated     BIGINT,
    reordered      BIGINT,
    expired        BIGINT,
    pending        BIGINT,
    unledgered     BIGINT,
    given_up       BIGINT,
    given_up_found BIGINT,               -- given up, but found on the log
    undecided      BIGINT,               -- acknowledged at an unknown offset, and not in the range that was read
    ledger_gaps    BIGINT,               -- missing batches of the ledger
    ledger_lost    BIGINT,               -- acknowledgements that producers dropped from their ledgers
    strange        BIGINT,               -- records or ledger rows that could not be read
    notes          VARCHAR,              -- other limits of the result, one per line
    auditable      BOOLEAN,              -- false: a compacted topic cannot be audited for loss
    sentence       VARCHAR,
    findings_path  VARCHAR               -- Parquet of all findings
);

-- The first 10,000 findings of each kind; the audit's Parquet files have all.
CREATE TABLE audit_findings (
    audit_id       VARCHAR NOT NULL,
    kind           VARCHAR NOT NULL,     -- lost | duplicated | reordered | ...
    message_id     VARCHAR,
    partition      INTEGER,
    "offset"       BIGINT,
    other_offset   BIGINT,               -- of the other copy, or of the record that it should follow
    text           VARCHAR
);

-- The offset up to which a topic was audited. The next incremental audit starts there.
CREATE TABLE audit_marks (
    cluster_id     VARCHAR NOT NULL,
    topic          VARCHAR NOT NULL,
    partition      INTEGER NOT NULL,
    verified_until BIGINT  NOT NULL,
    audit_id       VARCHAR NOT NULL,
    PRIMARY KEY (cluster_id, topic, partition)
);
