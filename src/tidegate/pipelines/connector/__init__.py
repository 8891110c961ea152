"""Tidegate's source and writer for Spark, in Java, and what compiles them.

The only code that is not Python: real-time mode takes no Python source, and a
Python writer holds rows back for seconds.
"""
