"""The standard library's ``dataclass``, for modules that still import it from here."""

from dataclasses import dataclass

__all__ = ["dataclass"]
