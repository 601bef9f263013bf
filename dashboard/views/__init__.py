"""The views: each reads, draws and acts; no SQL and no arithmetic."""
