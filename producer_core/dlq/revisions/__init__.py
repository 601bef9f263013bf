"""Edits of dead letters: each edit is a revision that a replay sends instead of the original. `editor` has the entry point."""
