"""Shards: finding, checking, ordering and reading the files that hold the rows.

``find`` finds and checks, ``order`` permutes, ``read`` reads ahead; a file a format.
"""
