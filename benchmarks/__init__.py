"""Speed and memory, measured; never a timed test."""
