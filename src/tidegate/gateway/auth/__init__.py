"""Identifies callers and decides what each may do, see and use.

Callers have an API key, an OIDC token or a client certificate. Roles grant rights, policies
grant services and attributes, quotas bound use. Reads no request body and delivers no event.
"""
