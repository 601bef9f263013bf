-- librdkafka's statistics as sums that can be merged: per client, and per broker of the client.
-- Durations are seconds. librdkafka's percentiles cover one second of one broker and cannot be merged, so there is
-- only `_p99`: the highest p99 of any such second within the row. A mean is _sum / _count.

CREATE TABLE client_statistics (
    resolution     INTEGER NOT NULL,     -- seconds a row covers: 1, 60 or 3600
    window_start   BIGINT  NOT NULL,
    cluster_id     VARCHAR NOT NULL,
    producer_id    VARCHAR NOT NULL,
    samples        BIGINT  NOT NULL,     -- statistics received, one per second
    cut_off        BIGINT  NOT NULL,     -- samples without a connected broker while one was needed or messages waited
    queued_sum     BIGINT  NOT NULL,     -- messages in the client's queue (msg_cnt), summed over the samples
    room_sum       BIGINT  NOT NULL,     -- messages it has room for (msg_max), summed over the samples
    batches        BIGINT  NOT NULL,     -- batches created (batchcnt.cnt, all topics)
    batch_messages BIGINT  NOT NULL,     -- messages in these batches
    batch_bytes    BIGINT  NOT NULL,     -- bytes in these batches, as sent
    epoch_rises    BIGINT  NOT NULL,     -- new epochs of the idempotent producer, each after an internal error
    fill_highest   DOUBLE  NOT NULL,     -- 0 to 1, of messages or of bytes, the higher one
    unpolled_highest BIGINT NOT NULL,    -- reports waiting for poll() (replyq)
    late_highest   DOUBLE  NOT NULL      -- how long the statistics themselves waited for poll()
);

CREATE TABLE broker_statistics (
    resolution     INTEGER NOT NULL,
    window_start   BIGINT  NOT NULL,
    cluster_id     VARCHAR NOT NULL,
    producer_id    VARCHAR NOT NULL,
    broker_id      INTEGER NOT NULL,     -- below 0: a bootstrap address
    address        VARCHAR NOT NULL,
    samples        BIGINT  NOT NULL,
    up             BIGINT  NOT NULL,     -- samples with a connection
    down           BIGINT  NOT NULL,     -- samples without a connection that was needed
    requests       BIGINT  NOT NULL,     -- requests sent (tx)
    retries        BIGINT  NOT NULL,     -- requests sent again (txretries)
    timeouts       BIGINT  NOT NULL,     -- requests not answered in time (req_timeouts)
    disconnects    BIGINT  NOT NULL,
    queue_count    BIGINT  NOT NULL,     -- messages that left the client's queue (int_latency)
    queue_sum      DOUBLE  NOT NULL,
    outbuf_count   BIGINT  NOT NULL,     -- requests that left librdkafka's send queue (outbuf_latency)
    outbuf_sum     DOUBLE  NOT NULL,
    rtt_count      BIGINT  NOT NULL,     -- requests answered: network and broker time (rtt)
    rtt_sum        DOUBLE  NOT NULL,
    throttle_count BIGINT  NOT NULL,     -- responses (throttle)
    throttle_sum   DOUBLE  NOT NULL,
    in_flight_highest BIGINT NOT NULL,   -- messages sent or about to be sent, without a response
    queue_highest  DOUBLE  NOT NULL,
    queue_p99      DOUBLE  NOT NULL,
    outbuf_highest DOUBLE  NOT NULL,
    outbuf_p99     DOUBLE  NOT NULL,
    rtt_highest    DOUBLE  NOT NULL,
    rtt_p99        DOUBLE  NOT NULL,
    throttle_highest DOUBLE NOT NULL
);
