"""`tidegate demo`: the command, the subscribers that it starts, and the services of a city that it runs."""
