"""Unit tests, which need no service."""
