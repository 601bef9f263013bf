"""Scenarios with faults during a replay of dead letters, and invariants over its store and the log."""
