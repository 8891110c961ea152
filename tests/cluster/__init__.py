"""Faults of the processes around a gateway: its log, its registry, its disk."""
