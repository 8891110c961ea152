"""`python -m tidegate`."""

from tidegate.cli.main import run

run()
