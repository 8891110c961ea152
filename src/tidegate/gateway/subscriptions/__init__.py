"""Durable subscriptions in this gateway: connect to them, persist their cursors, end those without permission."""
