"""Fault scenarios for a real producer, and invariants over its reports and the records in the log."""
