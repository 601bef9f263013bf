"""The interval of a producer's heartbeats in the store, and the seconds of silence after which it no longer counts as alive."""

IDLE_INTERVAL = 8.0
"""Seconds between two writes of an idle producer's heartbeat while the store is not read. All other writes are sooner."""

ALIVE = 15.0
"""Seconds since its last heartbeat during which a producer counts as alive, including as a replay runner.

Almost twice `IDLE_INTERVAL`: a heartbeat may be up to 7 seconds late, for example while another process holds the store.
"""
