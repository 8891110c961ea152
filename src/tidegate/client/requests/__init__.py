"""The requests of the HTTP API as values, one module per kind of resource.

Does no I/O and checks only what cannot be sent: the gateway validates the rest.
"""
