"""The process that serves the API and delivers events."""
