"""The local cache of decoded rows."""
