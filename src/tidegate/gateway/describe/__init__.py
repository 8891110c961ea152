"""What the API says of itself: its calls (OpenAPI), and the events that it gives (AsyncAPI)."""
