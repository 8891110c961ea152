"""Carries events to consumers: SSE, WebSocket, polling and webhooks, and the sockets under them.

Each transport is a sink or a sender for `tidegate.delivery`, which decides which events are sent, and when.
"""
