"""Long-running processes: a gateway, and the services on Spark."""
