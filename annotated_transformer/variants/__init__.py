"""Variants of the paper's model, plugged into it from outside: other positions, and gates in the feed-forward."""

from .gated import GatedFeedForward, gated_width, with_gate
from .schemes import SCHEMES, with_positions

__all__ = ["SCHEMES", "GatedFeedForward", "gated_width", "with_gate", "with_positions"]
