-- Index for finding one dead letter among ten million by its id in milliseconds. Not UNIQUE: a dead letter is replaced
-- within one transaction (deleted, inserted again), which DuckDB's unique indexes reject.
CREATE INDEX dead_letters_by_id ON dead_letters (message_id);
CREATE INDEX dead_letter_bodies_by_id ON dead_letter_bodies (message_id);
CREATE INDEX operation_records_by_id ON operation_records (message_id);
