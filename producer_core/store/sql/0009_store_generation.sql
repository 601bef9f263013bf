-- How often replays have begun. A file beside the store has the same number: a store with a lower one was put back from a copy.

CREATE TABLE store_generation (number BIGINT NOT NULL);
INSERT INTO store_generation VALUES (0);
