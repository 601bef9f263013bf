-- What librdkafka's own statistics say, as sums that can be merged: of each client, and of each broker it talks to.
-- Durations are seconds. librdkafka's percentiles are of one second of one broker and cannot be merged, so there is
-- only `_p99`: the highest p99 of any such second within the row. A mean is _sum / _count.

CREATE TABLE client_statistics (
    resolution     INTEGER NOT NULL,     -- seconds a row covers: 1, 60 or 3600
    window_start   BIGINT  NOT NULL,
    cluster_id     VARCHAR NOT NULL,
    producer_id    VARCHAR NOT NULL,
    samples        BIGINT  NOT NULL,     -- statistics heard, one a second
    cut_off        BIGINT  NOT NULL,     -- samples in which no broker was connected and one was wanted, or messages waited
    queued_sum     BIGINT  NOT NULL,     -- messages in the client's queue (msg_cnt), summed over the samples
    room_sum       BIGINT  NOT NULL,     -- messages it has room for (msg_max), summed likewise
    batches        BIGINT  NOT NULL,     -- batches made (batchcnt.cnt, all topics)
    batch_messages BIGINT  NOT NULL,     -- messages in them
    batch_bytes    BIGINT  NOT NULL,     -- bytes in them, as sent
    epoch_rises    BIGINT  NOT NULL,     -- the idempotent producer got a new epoch: an error it swallowed
    fill_highest   DOUBLE  NOT NULL,     -- 0 to 1, of messages or of bytes, whichever is fuller
    unpolled_highest BIGINT NOT NULL,    -- reports that waited to be polled (replyq)
    late_highest   DOUBLE  NOT NULL      -- how long the statistics themselves waited to be polled
);

CREATE TABLE broker_statistics (
    resolution     INTEGER NOT NULL,
    window_start   BIGINT  NOT NULL,
    cluster_id     VARCHAR NOT NULL,
    producer_id    VARCHAR NOT NULL,
    broker_id      INTEGER NOT NULL,     -- below 0: a bootstrap address
    address        VARCHAR NOT NULL,
    samples        BIGINT  NOT NULL,
    up             BIGINT  NOT NULL,     -- samples in which it was connected
    down           BIGINT  NOT NULL,     -- samples in which it was wanted and not connected
    requests       BIGINT  NOT NULL,     -- requests sent (tx)
    retries        BIGINT  NOT NULL,     -- requests sent again (txretries)
    timeouts       BIGINT  NOT NULL,     -- requests not answered in time (req_timeouts)
    disconnects    BIGINT  NOT NULL,
    queue_count    BIGINT  NOT NULL,     -- messages that left the client's queue (int_latency)
    queue_sum      DOUBLE  NOT NULL,
    outbuf_count   BIGINT  NOT NULL,     -- requests that left librdkafka's send queue (outbuf_latency)
    outbuf_sum     DOUBLE  NOT NULL,
    rtt_count      BIGINT  NOT NULL,     -- requests answered: network and broker (rtt)
    rtt_sum        DOUBLE  NOT NULL,
    throttle_count BIGINT  NOT NULL,     -- answers (throttle)
    throttle_sum   DOUBLE  NOT NULL,
    in_flight_highest BIGINT NOT NULL,   -- messages sent or about to be, not answered
    queue_highest  DOUBLE  NOT NULL,
    queue_p99      DOUBLE  NOT NULL,
    outbuf_highest DOUBLE  NOT NULL,
    outbuf_p99     DOUBLE  NOT NULL,
    rtt_highest    DOUBLE  NOT NULL,
    rtt_p99        DOUBLE  NOT NULL,
    throttle_highest DOUBLE NOT NULL
);
