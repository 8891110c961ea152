"""Runs services on Spark. The only package that imports pyspark.

Compiles a service into a query, plans its mode, and keeps the queries that run equal to the registry. Serves no
requests: its output is in the log. `ingress` fills raw streams, without Spark.
"""
