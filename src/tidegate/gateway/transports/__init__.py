"""Carries events to consumers: SSE, WebSocket, polling and webhooks, and the sockets under them.

Each transport is a sink or a sender of `tidegate.delivery`, which decides what is sent and when.
"""
