"""Iceberg tables: which data files hold the rows of a snapshot, read from the table's metadata.

pyiceberg asks the catalog and parses metadata and manifests. Every file is opened through the
user's file system: table metadata chooses none, no endpoint and no credentials.
docs/decisions/062-iceberg-tables.md
"""
