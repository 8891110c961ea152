"""The data plane on Spark, and the only home of pyspark.

Compiles a service into a query, plans how it runs, and keeps running what the
registry says. Serves nobody: what comes out is in the log. The sources that feed
raw streams do without Spark.
"""
