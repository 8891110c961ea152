"""The sources that a raw stream can have: each with its values and its form in a service file in one module.

No I/O: `tidegate.ingress.feeds` reads sources.
"""
