-- What the dead letters page asks beside the selections, which `producer_core/dlq` makes.

-- name: letter_stamp
-- What changes when anything happens to a letter: its state, since when, its replays.
SELECT state, state_at, replay_count FROM dead_letters WHERE message_id = $message_id;

-- name: letter_producer
-- Who a letter's producer is, as a person knows it.
SELECT client_id, host, pid FROM producers WHERE producer_id = $producer;
