-- Index for reading the events of a thousand dead letters among millions of events in tens of milliseconds. A publisher of
-- dead letters reads them for each slice, once within a transaction.
CREATE INDEX letter_events_by_id ON letter_events (message_id);
