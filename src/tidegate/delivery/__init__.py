"""Live, catch-up, acknowledgement, retry: from a service's output to whoever subscribed. No HTTP here."""
