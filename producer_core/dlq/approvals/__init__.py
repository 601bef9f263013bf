"""Roles and four eyes: which replays need the approval of a second person, and the requests for it."""
