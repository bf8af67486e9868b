"""Scores of rows one at a time, as fast as Python can: only numpy and mmh3 are imported here."""
