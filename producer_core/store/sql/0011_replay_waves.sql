-- Claims of a replay as one row each, and the features that a version must support to change dead letters.

-- An open wave: its operation has claimed its pending records numbered first_ord to last_ord, although neither these nor
-- their dead letters say so. dlq/replay_waves.py writes the claim to those rows before anything else may change them.
CREATE TABLE replay_waves (
    operation_id   VARCHAR NOT NULL,
    first_ord      BIGINT  NOT NULL,
    last_ord       BIGINT  NOT NULL,
    claimed_at     DOUBLE  NOT NULL
);

-- A version that lacks one of these may add statistics and dead letters, but neither change nor replay dead letters.
CREATE TABLE required_features (
    feature        VARCHAR PRIMARY KEY,
    required_since DOUBLE  NOT NULL
);
INSERT INTO required_features VALUES ('replay_waves', epoch(now()));
