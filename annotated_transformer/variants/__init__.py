"""Variants of the paper's model, plugged into it from outside: other ways to know where a word stands."""

from .schemes import SCHEMES, with_positions

__all__ = ["SCHEMES", "with_positions"]
