"""What a model is trained on: tasks that are generated, and parallel text (section 5.1).

The generated ones are exact and endless: dates and numbers in several languages, sequences to copy or to reverse.
Parallel text comes from a folder of files, from the corpus that the package ships, or from Hugging Face `datasets`.
All of them are a ``Corpus``: pairs to train on, pairs to watch the training by, and the test sets under their names.
What is tested never occurs among what is trained on.
"""

from __future__ import annotations

import codecs
import datetime
import functools
import gzip
import inspect
import lzma
import random
import re
import reprlib
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from . import require

if TYPE_CHECKING:
    from babel import Locale

__all__ = [
    "Corpus",
    "Pair",
    "copying",
    "dates",
    "from_datasets",
    "lines",
    "load",
    "numbers",
    "read_folder",
    "read_lines",
    "read_tsv",
    "reversing",
    "software_docs",
]

DAYS = range(datetime.date(1970, 1, 1).toordinal(), datetime.date(2070, 1, 1).toordinal())
"""A hundred years, so that a year of two digits is one year."""

SOFTWARE_DOCS = Path(__file__).parent / "corpus" / "software-docs"
TESTS = ("test_lohelp", "test_loui", "test_ha")
ROLES = {"train": ("train",), "validation": ("val", "dev"), "test": ("test",)}
"""How the names of a folder's files start, by what they are for."""

BLANKS = " \t\r"
"""What does not count at either end of a line."""

WMT = re.compile(r"wmt\d\d")
"""The data sets of the Conference on Machine Translation, as Hugging Face calls them."""

Item = TypeVar("Item")


class Pair(NamedTuple):
    """A sentence and its translation.

    Attributes:
        source: What is read.
        target: What is to be written.
        language: That of the target, where it has one, even if all pairs of a corpus have the same. A model of several
            is told it by the source's first token; whether it is, the tokenizer decides: see ``batching.encode``.
    """

    source: str
    target: str
    language: str | None = None


class Corpus(NamedTuple):
    """Sentence pairs for each purpose; no two of the lists share an item that a task was generated from.

    Attributes:
        train: What the model learns from.
        validation: What its training is watched by.
        test: What it is judged by, under a name each.
    """

    train: list[Pair]
    validation: list[Pair]
    test: dict[str, list[Pair]]


# Generated tasks


def dates(
    size: int = 60_000, languages: Sequence[str] = ("de", "zh", "ja"), seed: int = 0, held_out: int = 2000
) -> Corpus:
    """Write English dates in other languages: "Friday, March 8, 2024" becomes "Freitag, 8. März 2024".

    The days are those from 1970 to 2069, so that years of two digits name one year each. The source is written in any
    of Babel's four formats, the target in full with the weekday where the source has it, else in the long format.

    Args:
        size: Number of pairs to train on; a day may come more than once.
        languages: Of the targets, as Babel names them.
        seed: Where chance starts.
        held_out: Number of days that are kept out of training, in every language and format: one half for validation,
            the other for the test, each day once.

    Raises:
        TypeError: If a number is not an integer, or ``languages`` is not a sequence of strings.
        ValueError: If Babel does not know a language, there is none, or the days do not suffice.
    """
    from babel.dates import format_date

    _require_sizes(size, seed, held_out, most=len(DAYS) // 2)
    _require_languages(languages)
    locales = {language: _locale(language) for language in ("en", *languages)}
    chance = random.Random(seed)
    days = list(DAYS)
    chance.shuffle(days)

    def write(day: int, style: str, language: str) -> str:
        text: str = format_date(datetime.date.fromordinal(day), style, locale=locales[language])
        return text.replace("\u202f", " ").replace("\xa0", " ")  # blanks of special widths, here and not there

    def pair(day: int) -> Pair:
        style, language = chance.choice(("full", "long", "medium", "short")), chance.choice(languages)
        target = write(day, "full" if style == "full" else "long", language)
        return Pair(write(day, style, "en"), target, language)

    held, others = days[:held_out], days[held_out:]
    return _corpus(held, lambda: chance.choice(others), pair, size)


def _locale(language: str) -> Locale:
    """What Babel knows of a language."""
    from babel import Locale, UnknownLocaleError

    try:
        return Locale.parse(language)
    except (ValueError, UnknownLocaleError) as error:
        known = "names that Babel knows, such as 'de', 'ja' or 'de_AT'"
        raise ValueError(f"languages must be {known}, got {language!r}.") from error


def numbers(size: int = 60_000, languages: Sequence[str] = ("de", "zh"), seed: int = 0, held_out: int = 2000) -> Corpus:
    """Say English number words in other languages: "twenty-one" becomes "einundzwanzig" or "二十一".

    The numbers go from 1 to 999,999, those of few digits as often as those of many. Needs the extra "numbers".

    Args:
        size: Number of pairs to train on; a number may come more than once.
        languages: Of the targets: "zh", or what num2words knows.
        seed: Where chance starts.
        held_out: Number of numbers that are kept out of training in every language: one half for validation, the other
            for the test, each number once. They are drawn from a tenth of all, of which none is trained on.

    Raises:
        ModuleNotFoundError: If the extra is not installed.
        TypeError: If a number is not an integer, or ``languages`` is not a sequence of strings.
        ValueError: If num2words does not know a language, there is none, or the numbers do not suffice.
    """
    try:
        from cn2an import an2cn  # type: ignore[import-untyped]
        from num2words import CONVERTER_CLASSES, num2words  # type: ignore[import-untyped]
    except ModuleNotFoundError as error:
        raise _missing(error, "Number words", "numbers") from error
    _require_sizes(size, seed, held_out)
    _require_languages(languages)
    for language in languages:
        if language != "zh" and language not in CONVERTER_CLASSES:
            raise ValueError(f"languages must be 'zh' or names that num2words knows, such as 'de', got {language!r}.")
    chance = random.Random(seed)
    reserve = set(chance.sample(range(1, 1_000_000), 100_000))

    def draw() -> int:
        return min(int(10 ** chance.uniform(0, 6)), 999_999)

    @functools.cache  # small numbers come often
    def write(number: int, language: str) -> str:
        return str(an2cn(number) if language == "zh" else num2words(number, lang=language))

    def pair(number: int) -> Pair:
        language = chance.choice(languages)
        return Pair(write(number, "en"), write(number, language), language)

    held = _distinct(held_out, lambda: _until(draw, lambda number: number in reserve))
    return _corpus(held, lambda: _until(draw, lambda number: number not in reserve), pair, size)


def copying(size: int = 20_000, seed: int = 0, held_out: int = 2000, longest: int = 20) -> Corpus:
    """Write a row of digits again: what attention alone can do.

    Args:
        size: Number of pairs to train on.
        seed: Where chance starts.
        held_out: Number of rows that are kept out of training: one half for validation, the other for the test.
        longest: Most digits in a row; the fewest are five.

    Raises:
        TypeError: If a number is not an integer.
        ValueError: If one is too small, or ``held_out`` too large.
    """
    return _digits(lambda row: row, size, seed, held_out, longest)


def reversing(size: int = 20_000, seed: int = 0, held_out: int = 2000, longest: int = 20) -> Corpus:
    """Write a row of digits from its end: what attention cannot do without positions (section 3.5).

    Args:
        size: Number of pairs to train on.
        seed: Where chance starts.
        held_out: Number of rows that are kept out of training: one half for validation, the other for the test.
        longest: Most digits in a row; the fewest are five.

    Raises:
        TypeError: If a number is not an integer.
        ValueError: If one is too small, or ``held_out`` too large.
    """
    return _digits(lambda row: row[::-1], size, seed, held_out, longest)


def _digits(answer: Callable[[str], str], size: int, seed: int, held_out: int, longest: int) -> Corpus:
    """Rows of digits, and what is to be answered to each."""
    _require_sizes(size, seed, held_out)
    require.integer("longest", longest, least=5)
    chance = random.Random(seed)

    def draw() -> str:
        return "".join(chance.choices("0123456789", k=chance.randint(5, longest)))

    held = _distinct(held_out, draw)
    taken = set(held)
    return _corpus(held, lambda: _until(draw, lambda row: row not in taken), lambda row: Pair(row, answer(row)), size)


def _until(draw: Callable[[], Item], wanted: Callable[[Item], bool]) -> Item:
    """Draw until something is wanted."""
    while not wanted(item := draw()):
        pass
    return item


def _distinct(count: int, draw: Callable[[], Item]) -> list[Item]:
    """Draw until there are so many different ones, in the order of drawing."""
    found: dict[Item, None] = {}
    while len(found) < count:
        found[draw()] = None
    return list(found)


def _corpus(held: Sequence[Item], draw: Callable[[], Item], pair: Callable[[Item], Pair], size: int) -> Corpus:
    """Make the pairs, the held-out ones first: these are the same for every size."""
    half = len(held) // 2
    validation, test = [pair(item) for item in held[:half]], [pair(item) for item in held[half:]]
    return Corpus([pair(draw()) for _ in range(size)], validation, {"test": test})


def _require_sizes(size: int, seed: int, held_out: int, most: int = 10_000) -> None:
    """Refuse what a generated task cannot have."""
    require.integer("size", size, least=1)
    require.integer("seed", seed)
    require.integer("held_out", held_out, least=2)
    if held_out > most:
        raise ValueError(f"held_out must be at most {most}, so that enough is left to train on, got {held_out}.")


def _require_languages(languages: Sequence[str]) -> None:
    """Refuse anything but a sequence of names; a single string is a sequence of letters."""
    if isinstance(languages, str) or not all(isinstance(language, str) for language in languages):
        raise TypeError(f"languages must be a sequence of names such as ('de', 'zh'), got {languages!r}.")
    if not languages:
        raise ValueError("languages must be at least one, got none.")


def _missing(error: ModuleNotFoundError, what: str, extra: str) -> ModuleNotFoundError:
    """Say how to get a package that only some readers want."""
    return ModuleNotFoundError(f'{what} need {error.name}: pip install "annotated-transformer[{extra}]"')


# Parallel text


def read_lines(source_path: str | Path, target_path: str | Path, language: str | None = None) -> list[Pair]:
    """Read two files of which each line translates the other's line of the same number.

    The files are UTF-8, plain or packed with xz or gzip (by their names: ``.xz``, ``.gz``). A line ends where a newline
    stands, and at no other of Unicode's separators; blanks around it do not count.

    Args:
        source_path: The sources.
        target_path: The targets.
        language: What the pairs are to have as their language.

    Raises:
        FileNotFoundError: If a file, or its folder, is not there.
        IsADirectoryError: If it is a folder.
        ValueError: If a file is empty or not UTF-8, has an empty line, or the files do not have as many lines as each
            other. The message names file and line.
    """
    source_path, target_path = Path(source_path), Path(target_path)
    sources, targets = _lines(source_path), _lines(target_path)
    for path, texts in ((source_path, sources), (target_path, targets)):
        for number, text in enumerate(texts, 1):
            if not text.strip():
                raise ValueError(f"{path}, line {number} is empty: remove it, and line {number} of the other file.")
    if len(sources) != len(targets):
        shorter = min(len(sources), len(targets))
        longer, texts = (source_path, sources) if len(sources) > shorter else (target_path, targets)
        raise ValueError(
            f"{source_path} has {len(sources)} lines and {target_path} has {len(targets)}, which must be as many. "
            f"The first without a partner, if none is missing before, is {longer}, line {shorter + 1}: "
            f"{reprlib.repr(texts[shorter])}."
        )
    pairs = zip(sources, targets, strict=True)
    return [Pair(source.strip(BLANKS), target.strip(BLANKS), language) for source, target in pairs]


def read_tsv(path: str | Path, language: str | None = None) -> list[Pair]:
    """Read a file with one pair to a line: source, tab, target.

    Args:
        path: UTF-8, plain or packed with xz or gzip (by its name: ``.xz``, ``.gz``).
        language: What the pairs are to have as their language.

    Raises:
        FileNotFoundError: If the file, or its folder, is not there.
        IsADirectoryError: If it is a folder.
        ValueError: If the file is empty or not UTF-8, or a line does not have two columns with something in each. The
            message names file and line.
    """
    path = Path(path)
    pairs = []
    for number, text in enumerate(_lines(path), 1):
        columns = [column.strip(BLANKS) for column in text.split("\t")]
        if not text.strip():
            raise ValueError(f"{path}, line {number} is empty: remove it.")
        if len(columns) != 2:
            raise ValueError(f"{path}, line {number} must be source, tab, target; it has {len(columns)} columns.")
        if not all(columns):
            raise ValueError(f"{path}, line {number} has no {'target' if columns[0] else 'source'}: {text!r}.")
        pairs.append(Pair(columns[0], columns[1], language))
    return pairs


def lines(path: str | Path) -> list[str]:
    """Read the lines of a file of text, those without anything in them too.

    Args:
        path: UTF-8, plain or packed with xz or gzip (by its name: ``.xz``, ``.gz``).

    Raises:
        FileNotFoundError: If the file, or its folder, is not there.
        IsADirectoryError: If it is a folder.
        ValueError: If it is not UTF-8. The message names file and line.
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"There is no folder {path.parent}, where {path.name} should be.")
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; a file of text was wanted.")
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}; the folder has {_listing(path.parent)}.")
    unpack = {".xz": lzma.decompress, ".gz": gzip.decompress}.get(path.suffix, bytes)
    try:
        data = unpack(path.read_bytes())
    except (lzma.LZMAError, OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{path} cannot be unpacked: {error}. It is damaged, or not what its name says.") from error
    data = data.removeprefix(codecs.BOM_UTF8)
    if not data:
        return []
    return [_text(path, number, line) for number, line in enumerate(data.removesuffix(b"\n").split(b"\n"), 1)]


def _lines(path: Path) -> list[str]:
    """The lines of a file that must have some text."""
    found = lines(path)
    if not any(line.strip() for line in found):
        raise ValueError(f"{path} is empty.")
    return found


def _text(path: Path, number: int, line: bytes) -> str:
    """One line of a file, decoded."""
    advice = "Save the file as UTF-8; it may be UTF-16, Latin-1 or something packed."
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path}, line {number}: byte {error.start + 1}, 0x{line[error.start]:02x}, is not UTF-8. {advice}"
        ) from error
    if "\0" in text:
        raise ValueError(f"{path}, line {number} has a character of code 0, which no text has. {advice}")
    return text


def _listing(folder: Path) -> str:
    """The first files of a folder, for a message."""
    names = sorted(path.name for path in folder.iterdir())
    return ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "") if names else "no files"


def read_folder(folder: str | Path, source: str = "en", target: str = "de") -> Corpus:
    """Read a folder of parallel text, such as ``train.en`` + ``train.de``, ``val.en`` + ``val.de``, ``test.en`` + ...

    What a file is for, its name says by how it starts: "train"; "val" or "dev" for validation; "test", of which there
    may be several or none. The pairs of a purpose stand in two files that end in ``.source`` and ``.target``, or in one
    that ends in ``.tsv``; each may be packed (``.xz``, ``.gz``). Other files are left alone.

    Args:
        folder: Where the files are.
        source: How the names of the files in the source's language end.
        target: How the names of the files in the target's language end, and the language that every pair names.

    Raises:
        FileNotFoundError: If the folder is not there, nothing to train on or for validation is in it, or a file is
            there in one of the languages alone.
        NotADirectoryError: If it is a file.
        ValueError: If there are several files for training or for validation, or one cannot be read: see
            ``read_lines`` and ``read_tsv``.
    """
    folder = Path(folder)
    if folder.is_file():
        raise NotADirectoryError(f"{folder} is a file; the folder that it is in was wanted.")
    if not folder.is_dir():
        raise FileNotFoundError(f"There is no folder {folder}.")
    if source == target or "tsv" in (source, target):
        raise ValueError(f"source and target must be two endings, and neither 'tsv', got {source!r} and {target!r}.")
    files: dict[str, dict[str, Path]] = {}  # by what comes before the ending, then by the ending
    for path in sorted(path for path in folder.iterdir() if path.is_file()):
        name = path.name.removesuffix(".xz").removesuffix(".gz")
        for ending in (source, target, "tsv"):
            stem = name.removesuffix(f".{ending}")
            if stem != name and stem.startswith(sum(ROLES.values(), ())):
                first = files.setdefault(stem, {}).setdefault(ending, path)
                if first != path:
                    raise ValueError(f"{folder} has both {first.name} and {path.name}: leave one of them.")

    def read(stem: str) -> list[Pair]:
        paths = files[stem]
        if paths.keys() == {"tsv"}:
            return read_tsv(paths["tsv"], target)
        if paths.keys() == {source, target}:
            return read_lines(paths[source], paths[target], target)
        names = " and ".join(path.name for path in paths.values())
        if "tsv" in paths:
            raise ValueError(f"{folder} has both {names}: leave the pairs in one form.")
        lacking = ({source, target} - paths.keys()).pop()
        raise FileNotFoundError(f"{folder} has {names} without {stem}.{lacking}; it has {_listing(folder)}.")

    def only(role: str) -> list[Pair]:
        stems = [stem for stem in files if stem.startswith(ROLES[role])]
        start = ROLES[role][0]
        if not stems:
            raise FileNotFoundError(
                f"{folder} has nothing for {role}: no {start}.{source} with {start}.{target}, and no {start}.tsv; "
                f"it has {_listing(folder)}."
            )
        if len(stems) > 1:
            raise ValueError(f"{folder} has several files for {role}, {' and '.join(stems)}: leave one of them.")
        return read(stems[0])

    tests = {stem: read(stem) for stem in files if stem.startswith(ROLES["test"])}
    return Corpus(only("train"), only("validation"), tests)


def software_docs(languages: Sequence[str] = ("de", "zh")) -> Corpus:
    """Load the corpus that the package ships: the help and the menus of programs, English to German and Chinese.

    Args:
        languages: Of the targets: "de", "zh" or both.

    Returns:
        The corpus, its test sets by language and origin, such as "de.test_lohelp", "de.test_loui" and "de.test_ha".

    Raises:
        TypeError: If ``languages`` is not a sequence of strings.
        ValueError: If there is a language that the corpus does not have, or none.
    """
    _require_languages(languages)
    for language in languages:
        if language not in ("de", "zh"):
            raise ValueError(f"languages must be among 'de' and 'zh', got {language!r}.")

    def read(language: str, split: str) -> list[Pair]:
        return read_tsv(SOFTWARE_DOCS / f"{language}.{split}.tsv.xz", language)

    return Corpus(
        [pair for language in languages for pair in read(language, "train")],
        [pair for language in languages for pair in read(language, "val")],
        {f"{language}.{name}": read(language, name) for language in languages for name in TESTS},
    )


def from_datasets(name: str, config: str | None = None, source: str = "en", target: str = "de") -> Corpus:
    """Load a corpus of translations through Hugging Face `datasets`: "wmt14" with "de-en" is the paper's (section 5.1).

    Needs the extra "datasets", and the network the first time, unless ``name`` is a folder. The data set must have
    the form of WMT's: the splits "train", "validation" and "test", and a column "translation" with a text for each
    language. What has no text on one side is left out of training.

    Args:
        name: Of the data set; "wmt14" is short for "wmt/wmt14".
        config: Which of its parts; both languages, for WMT.
        source: The source's language.
        target: The target's language, and that of every pair.

    Raises:
        ModuleNotFoundError: If the extra is not installed.
        ValueError: If a split or a language is not there, or a pair to validate or to test with has an empty side.
    """
    try:
        from datasets import load_dataset  # type: ignore[import-untyped]
    except ModuleNotFoundError as error:
        raise _missing(error, "Data sets of Hugging Face", "datasets") from error
    data = load_dataset(f"wmt/{name}" if WMT.fullmatch(name) else name, config)

    def read(split: str) -> list[Pair]:
        if split not in data:
            raise ValueError(f"{name} must have a split {split!r}; it has {', '.join(data)}.")
        features = data[split].features
        known = getattr(features.get("translation"), "languages", None)
        if known is None or not {source, target} <= set(known):
            raise ValueError(f"{name} must have 'translation' in {source!r} and {target!r}; it has {dict(features)}.")
        rows = ((row["translation"][source], row["translation"][target]) for row in data[split])
        pairs = [Pair((one or "").strip(), (other or "").strip(), target) for one, other in rows]
        whole = [pair for pair in pairs if pair.source and pair.target]
        if len(whole) < len(pairs) and split != "train":
            number = next(number for number, pair in enumerate(pairs) if not (pair.source and pair.target))
            raise ValueError(f"{name}, {split}, row {number} has an empty side: {pairs[number][:2]}.")
        return whole

    return Corpus(read("train"), read("validation"), {"test": read("test")})


TASKS: dict[str, Callable[..., Corpus]] = {
    "dates": dates,
    "numbers": numbers,
    "copying": copying,
    "reversing": reversing,
    "software-docs": software_docs,
}
"""What ``load`` knows by name."""


def load(name: str | Path, **options: Any) -> Corpus:
    """Find a corpus by its name, or in a folder.

    Args:
        name: "dates", "numbers", "copying", "reversing" or "software-docs"; "wmt14" or another of WMT's years from
            Hugging Face; else a folder of parallel text. Write ``./dates`` for a folder that is called like a task.
        **options: What the function takes that makes it, such as ``languages`` or ``seed``; ``source`` and ``target``
            for a folder.

    Raises:
        TypeError: If it does not take an option.
        FileNotFoundError: If there is no task and no folder of that name.
        ValueError: What the function that makes the corpus raises.
    """
    if isinstance(name, str) and name in TASKS:
        make = TASKS[name]
    elif isinstance(name, str) and WMT.fullmatch(name):
        tongues = [options.get("source"), options.get("target")]
        other = next((tongue for tongue in tongues if tongue not in (None, "en")), "de")
        make, options = from_datasets, {"name": name, "config": f"{other}-en", **options}
    elif Path(name).exists():
        make, options = read_folder, {"folder": name, **options}
    else:
        raise FileNotFoundError(
            f"There is no folder {str(name)!r}, and no such task: these are {', '.join(TASKS)}, wmt14."
        )
    takes = inspect.signature(make).parameters
    for option in options:
        if option not in takes:
            raise TypeError(f"{name} takes no {option!r}; what it takes is {', '.join(takes)}.")
    return make(**options)
