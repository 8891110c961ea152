"""Benchmarks of speed and memory. Tests never check times."""
