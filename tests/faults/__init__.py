"""Faults of where checkpoints are kept: kinds of them, each a number of seeded cases.

``python -m tests.faults`` runs every case and prints the table of ``docs/reliability.md``.
"""
