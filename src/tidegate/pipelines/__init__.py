"""The data plane on Spark, and the only home of pyspark.

Today: sessions, types, the filter language as native column expressions, and the
sources that feed raw streams, which do without Spark.
"""
