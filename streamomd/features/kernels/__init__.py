"""Compiled passes over Arrow buffers: hashing, splitting words, joining rows."""
