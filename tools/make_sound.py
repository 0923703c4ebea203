"""Makes book/paper-sentence.wav: a machine speaks a sentence of the paper, which a chapter has written down again.

    python3 tools/make_sound.py        needs espeak-ng (1.51, Debian's package of that name), and NumPy

The voice comes at 22,050 samples a second; the model of the chapter hears 16,000, and so many are stored.
"""

import subprocess
import tempfile
import wave
from pathlib import Path

import numpy as np

SOUND = Path(__file__).resolve().parents[1] / "book/paper-sentence.wav"
SENTENCE = (
    "The Transformer is based solely on attention mechanisms, dispensing with recurrence and convolutions entirely."
)
RATE = 16_000


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        spoken = Path(folder) / "spoken.wav"
        subprocess.run(["espeak-ng", "-v", "en-us", "-s", "140", "-w", str(spoken), SENTENCE], check=True)
        with wave.open(str(spoken), "rb") as file:
            rate, samples = file.getframerate(), np.frombuffer(file.readframes(file.getnframes()), "<i2")
    with wave.open(str(SOUND), "wb") as file:
        file.setparams((1, 2, RATE, 0, "NONE", "not compressed"))
        file.writeframes(at_another_rate(samples, rate, RATE).tobytes())


def at_another_rate(samples: np.ndarray, old: int, new: int) -> np.ndarray:
    """The same sound with other samples: its frequencies, without those that the new rate cannot hold."""
    length = round(len(samples) * new / old)
    spectrum = np.fft.rfft(samples)[: length // 2 + 1]
    sound = np.fft.irfft(spectrum, length) * length / len(samples)
    return sound.round().clip(-(2**15), 2**15 - 1).astype("<i2")


if __name__ == "__main__":
    main()
