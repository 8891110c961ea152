"""The audit log, and the middleware that records what callers change."""
