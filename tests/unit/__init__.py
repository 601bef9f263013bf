"""Unit tests: no service, seconds together."""
