"""The approval policy of a store, the roles of people under it, and the check of a role before an act."""
