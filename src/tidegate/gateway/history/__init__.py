"""History as data: a span of a service's output as an Arrow IPC stream or a Parquet file, in bounded memory."""
