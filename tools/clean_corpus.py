"""Make the corpus that the package ships from the pairs as they were extracted.

``python tools/clean_corpus.py RAW`` reads ``RAW/{de,zh}.{train,val,test_lohelp,test_loui,test_ha}.tsv``, one pair to a
line: English, tab, translation. It writes the clean pairs into the package, packed, and prints how many it dropped by
which rule; ``NOTICE.md`` beside the corpus tells the rules to its readers. The same pairs give the same bytes.
"""

from __future__ import annotations

import argparse
import lzma
import re
import unicodedata
from collections import Counter
from pathlib import Path

SPLITS = ("train", "val", "test_lohelp", "test_loui", "test_ha")
RATIOS = {
    "de": (0.4, 2.5),
    "zh": (0.12, 1.0),
}  # characters of the target to one of the source
PACKAGE = Path(__file__).resolve().parents[1] / "annotated_transformer" / "corpus" / "software-docs"

Pair = tuple[str, str]


def normalised(text: str) -> str:
    """One form for what looks the same: NFC, single blanks, no soft hyphens."""
    return re.sub(r"\s+", " ", unicodedata.normalize("NFC", text).replace("\u00ad", "")).strip()


def letters(text: str) -> str:
    """A text without all that is no letter, and without capitals; near duplicates agree in it."""
    return "".join(character for character in text.casefold() if character.isalpha())


def broken(source: str, target: str) -> str | None:
    """Why a pair is of no use, even for a test; None if it is."""
    for text in (source, target):
        if any(unicodedata.category(character) in ("Cc", "Co", "Cn") or character == "\ufffd" for character in text):
            return "control characters"
        if not letters(text):
            return "symbols only"
    return None


def unfit(language: str, source: str, target: str) -> str | None:
    """Why nothing should be learnt from a pair; None if it is fit."""
    if letters(source) == letters(target) or (language == "zh" and not re.search("[\u4e00-\u9fff]", target)):
        return "not translated"
    least, most = RATIOS[language]
    return None if least <= len(target) / len(source) <= most else "lengths too different"


def read(path: Path) -> list[Pair]:
    pairs = []
    for number, line in enumerate(path.read_text(encoding="utf-8").rstrip("\n").split("\n"), 1):
        columns = line.split("\t")
        if len(columns) != 2:
            raise SystemExit(f"{path}, line {number} must be source, tab, target; it has {len(columns)} columns.")
        pairs.append((normalised(columns[0]), normalised(columns[1])))
    return pairs


def clean(raw: dict[str, dict[str, list[Pair]]]) -> tuple[dict[str, dict[str, list[Pair]]], Counter[tuple[str, ...]]]:
    """The pairs that stay, by language and split, and how many are dropped, by language, split and rule."""
    dropped: Counter[tuple[str, ...]] = Counter()
    kept: dict[str, dict[str, list[Pair]]] = {language: {} for language in raw}
    # The tests first, then validation, then training: an English sentence stays in the first that has it, whatever
    # language it is translated to, so that nothing is trained on that is tested.
    seen: set[str] = set()
    for splits in (SPLITS[2:], ("val",), ("train",)):
        new: set[str] = set()
        for language, split in ((language, split) for language in raw for split in splits):
            kept[language][split] = []
            for source, target in raw[language][split]:
                reason = broken(source, target)
                if not reason and letters(source) in seen:
                    reason = "also in a test or in validation"
                if not reason and not split.startswith("test"):
                    reason = unfit(language, source, target)
                if reason:
                    dropped[language, split, reason] += 1
                else:
                    kept[language][split].append((source, target))
                    new.add(letters(source))
        seen |= new
    return kept, dropped


def write(path: Path, pairs: list[Pair]) -> None:
    text = "".join(f"{source}\t{target}\n" for source, target in pairs)
    path.write_bytes(lzma.compress(text.encode("utf-8"), preset=9 | lzma.PRESET_EXTREME))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("raw", type=Path, help="folder of the pairs as they were extracted")
    parser.add_argument("folder", type=Path, nargs="?", default=PACKAGE, help="where the clean ones are written")
    arguments = parser.parse_args()
    raw = {
        language: {split: read(arguments.raw / f"{language}.{split}.tsv") for split in SPLITS} for language in RATIOS
    }
    kept, dropped = clean(raw)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for language, split in ((language, split) for language in RATIOS for split in SPLITS):
        pairs = kept[language][split]
        write(arguments.folder / f"{language}.{split}.tsv.xz", pairs)
        reasons = {key[2]: count for key, count in sorted(dropped.items()) if key[:2] == (language, split)}
        print(f"{language}.{split}: {len(raw[language][split])} pairs, {len(pairs)} kept; dropped {reasons or 'none'}")


if __name__ == "__main__":
    main()
