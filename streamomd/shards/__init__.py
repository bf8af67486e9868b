"""Shards: find, check, order and read the files that hold the rows.

``find`` finds and checks, ``order`` permutes, ``reader`` prefetches; one file per format.
"""
