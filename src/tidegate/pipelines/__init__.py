"""The data plane on Spark, and the only home of pyspark.

Today: sessions, types and the filter language as native column expressions.
"""
