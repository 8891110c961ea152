"""The data folder: its log, registry, lock and keys, and who may read them."""
