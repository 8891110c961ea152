"""The parts of HTTP that all routes share: parameters, bodies, problems, limits, threads, TLS.

Knows nothing of services or subscriptions beyond the filters that requests carry.
"""
