"""Files, directories and globs of a disk or a store."""
