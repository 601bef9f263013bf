-- Queries of the dead-letters page, in addition to the selections of `producer_core/dlq`.

-- name: letter_stamp
-- Fields that change with every event of a dead letter: its state, the time of the state, its replays.
SELECT state, state_at, replay_count FROM dead_letters WHERE message_id = $message_id;

-- name: letter_producer
-- The client id, host and process of a dead letter's producer.
SELECT client_id, host, pid FROM producers WHERE producer_id = $producer;
