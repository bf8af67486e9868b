"""The public verbs: train, resume, submit and sweep."""
