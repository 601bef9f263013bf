"""Scenarios that harm a real producer, and invariants that must hold over what it said and what the log has."""
