"""Brokers that route events to each other: `routes`, the pure core, and `link`, which carries what it says."""
