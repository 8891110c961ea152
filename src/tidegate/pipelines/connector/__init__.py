"""Tidegate's source, writer and state engine for Spark, in Java, and the code that compiles them.

They are in Java because real-time mode accepts no Python source, and a Python writer holds rows back for seconds.
"""
