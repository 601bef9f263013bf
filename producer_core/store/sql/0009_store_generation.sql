-- The number of replays started. A file beside the store has the same number: a lower one here means that the store was
-- restored from a copy.

CREATE TABLE store_generation (number BIGINT NOT NULL);
INSERT INTO store_generation VALUES (0);
