"""Scenarios that harm a replay of dead letters, and invariants that must hold over its store and the log."""
