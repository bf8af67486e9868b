"""The public verbs: train, resume, load, submit and sweep."""
