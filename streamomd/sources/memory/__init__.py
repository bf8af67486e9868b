"""Tables and frames in memory, as Arrow."""
