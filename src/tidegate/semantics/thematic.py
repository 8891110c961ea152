"""Thematic matching, one event at a time: as the language has it, where those who look for meaning find it."""

from tidegate.filters.thematic import Meant, Predicate, Thematic, match

__all__ = ["Meant", "Predicate", "Thematic", "match"]
