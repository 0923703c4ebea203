"""Published weights in the book's own layers: to compare sentences, to hear, and to go on with a text (section 7)."""

from .files import missing
from .minilm import MiniLM
from .smollm2 import SmolLM2
from .whisper import Whisper, log_mel, read_wave

__all__ = ["MiniLM", "SmolLM2", "Whisper", "log_mel", "missing", "read_wave"]
