"""Brokers that route events to each other: `routes`, the pure core, knows no network, file or clock."""
