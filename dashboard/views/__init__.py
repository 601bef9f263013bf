"""Draw the pages: each view reads its data, draws it and offers actions, without SQL and without arithmetic."""
