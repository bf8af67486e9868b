"""An HTTP server of predictions: one model, read from a checkpoint and from its newer commits.

    request → limits of the connection → token → rows → one snapshot of the model → JSON

It never learns. A snapshot is immutable: a reload replaces it whole, so that every response is of
one commit.
"""
