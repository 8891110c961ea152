"""Backups of a data folder: one consistent cut, made while Tidegate runs, and its restore.

A backup has what the log, the registry and the checkpoints hold, not the profile, and keys only if that is asked for.
"""
