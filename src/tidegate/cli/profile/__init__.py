"""Profiles: what an installation runs on, read from YAML. One file per key of a profile, with the key's name."""

from tidegate.cli.profile.profile import EMBEDDED, Profile, load_profile

__all__ = ["EMBEDDED", "Profile", "load_profile"]
