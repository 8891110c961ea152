"""What commands write: log lines on standard error, events into a pipe, and samples of a running gateway."""
