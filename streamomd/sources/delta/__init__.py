"""Delta tables: which data files hold the rows of a version, read from the table's log.

The log is read here, through the user's file system, and not by the library deltalake: that one
reads through stores of its own, and does not say which commit added a file, in which order, and
whether a commit changed data. docs/decisions/042-delta-tables.md
"""
