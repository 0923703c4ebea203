"""Published weights in the book's own layers: one model compares sentences, the other hears (section 7)."""

from .minilm import MiniLM
from .whisper import Whisper, log_mel, read_wave

__all__ = ["MiniLM", "Whisper", "log_mel", "read_wave"]
