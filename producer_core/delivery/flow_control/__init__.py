"""Limit what the producer sends: by rate."""
