"""The Spark side of each operator: one module with `apply`, a function from frame to frame. Starts no query."""
