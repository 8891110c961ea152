"""Durable subscriptions in this gateway: serves them, stores their cursors, and ends those without rights."""
