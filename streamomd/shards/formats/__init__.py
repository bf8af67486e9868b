"""The file formats of shards: Parquet and Arrow."""
