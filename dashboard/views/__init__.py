"""The views: what a page reads, draws and lets one do; no SQL and no arithmetic."""
