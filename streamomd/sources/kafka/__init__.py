"""Kafka topics as sources: ranges of offsets are shards, and a run's commit has the offsets."""
