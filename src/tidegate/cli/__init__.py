"""The command line: one file per command.

Reads files, prints, and turns errors into messages and exit codes; all rules
live below.
"""
