-- Sums of the statistics that retention deleted, so that a total since the store was created never falls. Retention adds
-- each row here, within the transaction that deletes it; store/expired_totals.py. Maxima are not kept.

CREATE TABLE expired_statistics (
    first_window   BIGINT  NOT NULL,     -- start of the earliest window in the sums
    cluster_id     VARCHAR NOT NULL,
    topic          VARCHAR NOT NULL,
    accepted       BIGINT  NOT NULL,
    acknowledged   BIGINT  NOT NULL,
    dead           BIGINT  NOT NULL,
    failed_attempts BIGINT NOT NULL,
    retried        BIGINT  NOT NULL,
    retry_successes BIGINT NOT NULL,
    duplicates     BIGINT  NOT NULL,
    possible_duplicates BIGINT NOT NULL,
    bytes          BIGINT  NOT NULL,
    latency_sum    DOUBLE  NOT NULL
);

CREATE TABLE expired_latencies (
    first_window   BIGINT  NOT NULL,
    cluster_id     VARCHAR NOT NULL,
    topic          VARCHAR NOT NULL,
    bucket         INTEGER NOT NULL,
    count          BIGINT  NOT NULL
);

CREATE TABLE expired_errors (
    first_window   BIGINT  NOT NULL,
    cluster_id     VARCHAR NOT NULL,
    topic          VARCHAR NOT NULL,
    code           VARCHAR NOT NULL,
    kind           VARCHAR NOT NULL,
    count          BIGINT  NOT NULL
);

CREATE TABLE expired_client_statistics (
    first_window   BIGINT  NOT NULL,
    cluster_id     VARCHAR NOT NULL,
    samples        BIGINT  NOT NULL,
    cut_off        BIGINT  NOT NULL,
    queued_sum     BIGINT  NOT NULL,
    room_sum       BIGINT  NOT NULL,
    batches        BIGINT  NOT NULL,
    batch_messages BIGINT  NOT NULL,
    batch_bytes    BIGINT  NOT NULL,
    epoch_rises    BIGINT  NOT NULL
);

CREATE TABLE expired_broker_statistics (
    first_window   BIGINT  NOT NULL,
    cluster_id     VARCHAR NOT NULL,
    broker_id      INTEGER NOT NULL,
    address        VARCHAR NOT NULL,
    samples        BIGINT  NOT NULL,
    up             BIGINT  NOT NULL,
    down           BIGINT  NOT NULL,
    requests       BIGINT  NOT NULL,
    retries        BIGINT  NOT NULL,
    timeouts       BIGINT  NOT NULL,
    disconnects    BIGINT  NOT NULL,
    queue_count    BIGINT  NOT NULL,
    queue_sum      DOUBLE  NOT NULL,
    outbuf_count   BIGINT  NOT NULL,
    outbuf_sum     DOUBLE  NOT NULL,
    rtt_count      BIGINT  NOT NULL,
    rtt_sum        DOUBLE  NOT NULL,
    throttle_count BIGINT  NOT NULL,
    throttle_sum   DOUBLE  NOT NULL
);
