-- The fleet's pipeline: ledgers of what brokers acknowledged, jobs that run, audits and what they found.

-- What the broker acknowledged, as rows that add up: one a batch, session, topic, partition and window of sequences.
-- Only where a producer keeps its ledger in its store; docs/telemetry.md has the formulas.
CREATE TABLE ledger (
    producer_id    VARCHAR NOT NULL,     -- whose ledger: (producer_id, batch) comes once
    batch          BIGINT  NOT NULL,     -- its batch, dense: a missing number is a hole in the ledger
    session        VARCHAR NOT NULL,     -- of the message ids; a recovered or replayed message keeps its own
    cluster_id     VARCHAR NOT NULL,
    topic          VARCHAR NOT NULL,
    partition      INTEGER NOT NULL,
    first_window   BIGINT  NOT NULL,     -- sequence // 4096
    count          BIGINT  NOT NULL,     -- acknowledgements
    sum_seq        BIGINT  NOT NULL,     -- sum of sequence % 4096
    fp             BIGINT,               -- sum of (sequence % 4096 + 1) * (offset % 16777213); NULL: places unknown
    late           BIGINT  NOT NULL,     -- acknowledged after a higher sequence of this session and partition
    off_min        BIGINT  NOT NULL,     -- -1 and -1: acknowledged, and nobody knows at which offset
    off_max        BIGINT  NOT NULL,
    seqs           BIGINT[] NOT NULL,    -- in the order of offsets: the first sequence, then differences
    offs           BIGINT[] NOT NULL,    -- likewise; empty where places are unknown
    written_at     DOUBLE  NOT NULL,     -- by its producer
    merged_at      DOUBLE  NOT NULL      -- into this store; later where the store could not be had
);

-- What was given up, with the verdict of that moment.
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

-- Jobs of `producer-core pipeline`, one row a job: what the Fleet page shows of them.
CREATE TABLE pipeline_jobs (
    name           VARCHAR PRIMARY KEY,
    kind           VARCHAR NOT NULL,     -- telemetry | integrity | reprocess
    host           VARCHAR NOT NULL,
    pid            BIGINT  NOT NULL,
    started_at     DOUBLE  NOT NULL,
    seen_at        DOUBLE  NOT NULL,     -- its last sign of life
    ended_at       DOUBLE,
    state          VARCHAR NOT NULL,     -- running | done | failed
    records_done   BIGINT,
    records_total  BIGINT,               -- NULL: nobody knows
    lag            BIGINT,               -- records on the topic that it has not read
    last_success_at DOUBLE,
    message        VARCHAR,              -- the last thing worth saying, in a sentence
    details        VARCHAR               -- JSON
);

CREATE TABLE audits (
    audit_id       VARCHAR PRIMARY KEY,
    topic          VARCHAR NOT NULL,
    cluster_id     VARCHAR NOT NULL,
    started_at     DOUBLE  NOT NULL,
    seen_at        DOUBLE  NOT NULL,     -- its last sign of life; one that was killed stays `running`
    finished_at    DOUBLE,
    state          VARCHAR NOT NULL,     -- running | done | failed
    isolation      VARCHAR NOT NULL,     -- read_committed | read_uncommitted
    since          DOUBLE,
    until          DOUBLE,
    ranges         VARCHAR,              -- JSON: {partition: [start, end, low watermark, last stable offset]}
    records        BIGINT,               -- read
    ours           BIGINT,               -- with a message id
    foreign_records BIGINT,              -- without: counted, not guessed
    acknowledged   BIGINT,               -- ledger entries within the range
    lost           BIGINT,
    duplicated     BIGINT,
    reordered      BIGINT,
    expired        BIGINT,
    pending        BIGINT,
    unledgered     BIGINT,
    given_up       BIGINT,
    given_up_found BIGINT,               -- given up, and on the log all the same
    undecided      BIGINT,               -- acknowledged at an unknown offset, and not in the part that was read
    ledger_gaps    BIGINT,               -- batches of the ledger that are missing
    ledger_lost    BIGINT,               -- acknowledgements that producers had to leave out of their ledgers
    strange        BIGINT,               -- records or rows of the ledger that could not be read
    notes          VARCHAR,              -- what else bounds its words, a line each
    auditable      BOOLEAN,              -- false: a compacted topic cannot be audited for loss
    sentence       VARCHAR,
    findings_path  VARCHAR               -- Parquet of all findings
);

-- The first 10,000 findings of each kind; all of them are in the audit's Parquet.
CREATE TABLE audit_findings (
    audit_id       VARCHAR NOT NULL,
    kind           VARCHAR NOT NULL,     -- lost | duplicated | reordered | ...
    message_id     VARCHAR,
    partition      INTEGER,
    "offset"       BIGINT,
    other_offset   BIGINT,               -- of the other copy, or of the record it should follow
    text           VARCHAR
);

-- Up to which offset a topic was audited: where the next incremental audit begins.
CREATE TABLE audit_marks (
    cluster_id     VARCHAR NOT NULL,
    topic          VARCHAR NOT NULL,
    partition      INTEGER NOT NULL,
    verified_until BIGINT  NOT NULL,
    audit_id       VARCHAR NOT NULL,
    PRIMARY KEY (cluster_id, topic, partition)
);
