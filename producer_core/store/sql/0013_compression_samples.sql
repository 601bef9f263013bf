-- How much each codec compresses what a producer sends to a topic: sums over samples, of which later ones count more.
CREATE TABLE compression_samples (
    producer_id VARCHAR NOT NULL,
    cluster_id VARCHAR NOT NULL,
    topic VARCHAR NOT NULL,
    measured_at DOUBLE NOT NULL,
    codec VARCHAR NOT NULL,               -- of the producer's client
    bytes_per_second DOUBLE NOT NULL,     -- acknowledged values, since the producer started
    samples BIGINT NOT NULL,
    messages BIGINT NOT NULL,
    bytes BIGINT NOT NULL,                -- of the samples, without compression
    lz4_bytes BIGINT NOT NULL,
    zstd_bytes BIGINT NOT NULL,
    lz4_seconds DOUBLE NOT NULL,          -- CPU time
    zstd_seconds DOUBLE NOT NULL
);
