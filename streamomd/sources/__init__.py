"""Sources: where the shards of a job come from, and which of them are new to a run."""
