"""Tasks and corpora: what the pairs are, that nothing tested is trained on, and every wrong file named by its line."""

from __future__ import annotations

import datetime
import gzip
import lzma
import re
import sys
import unicodedata
from pathlib import Path

import pytest

from annotated_transformer import tasks
from annotated_transformer.tasks import (
    Corpus,
    Pair,
    copying,
    dates,
    from_datasets,
    load,
    numbers,
    read_folder,
    read_lines,
    read_tsv,
    reversing,
    software_docs,
)
from tools import clean_corpus

MONTHS = "Januar Februar März April Mai Juni Juli August September Oktober November Dezember".split()  # noqa: SIM905
WEEKDAYS = "Montag Dienstag Mittwoch Donnerstag Freitag Samstag Sonntag".split()  # noqa: SIM905
GENERATORS = {"dates": dates, "numbers": numbers, "copying": copying, "reversing": reversing}


@pytest.fixture(scope="module")
def calendar() -> Corpus:
    return dates(size=3001, held_out=211)


def everything(corpus: Corpus) -> list[Pair]:
    return [*corpus.train, *corpus.validation, *(pair for pairs in corpus.test.values() for pair in pairs)]


def raises(error: type[Exception], *parts: str | Path):
    """Expect an error of exactly that type, with each of the parts in its message."""
    return pytest.raises(error, match=".*".join(re.escape(str(part)) for part in parts))


# Generated tasks


@pytest.mark.parametrize("name", GENERATORS)
def test_a_generated_task_has_the_sizes_it_was_asked_for(name):
    corpus = GENERATORS[name](size=307, held_out=31)
    assert (len(corpus.train), len(corpus.validation), len(corpus.test["test"])) == (307, 15, 16)
    assert list(corpus.test) == ["test"]


@pytest.mark.parametrize("name", GENERATORS)
def test_chance_starts_from_the_seed_alone(name):
    first = GENERATORS[name](size=53, held_out=23, seed=5)
    assert GENERATORS[name](size=53, held_out=23, seed=5) == first
    other = GENERATORS[name](size=53, held_out=23, seed=6)
    assert other.train != first.train
    assert other.test != first.test


@pytest.mark.parametrize("name", GENERATORS)
def test_what_is_held_out_does_not_depend_on_the_size(name):
    assert GENERATORS[name](size=11, held_out=23)[1:] == GENERATORS[name](size=97, held_out=23)[1:]


@pytest.mark.parametrize("name", GENERATORS)
def test_generated_tasks_refuse_wrong_sizes(name):
    make = GENERATORS[name]
    for wrong in ({"size": 0}, {"held_out": 1}):
        with raises(ValueError, next(iter(wrong)), "must be at least"):
            make(**wrong)
    for wrong in ({"size": 5.0}, {"held_out": "7"}, {"seed": None}):
        with raises(TypeError, next(iter(wrong)), "must be an integer"):
            make(**wrong)
    with raises(ValueError, "held_out must be at most", "got 20000"):
        make(held_out=20_000)


def day_of(source: str) -> datetime.date:
    """The day that an English source names, read without Babel."""
    if "/" in source:
        month, day, year = map(int, source.split("/"))
        return datetime.date(year + (1900 if year >= 70 else 2000), month, day)
    month, day, year = re.fullmatch(r"(?:\w+day, )?(\w+) (\d+), (\d{4})", source).groups()
    names = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
    return datetime.date(int(year), names.index(month[:3]) + 1, int(day))


def test_targets_name_the_day_of_the_source(calendar):
    for source, target, language in everything(calendar):
        day = day_of(source)
        if language == "de":
            found = re.fullmatch(r"(?:(\w+), )?(\d+)\. (\w+) (\d{4})", target)
            weekday = WEEKDAYS[day.weekday()]
            parts = int(found[4]), MONTHS.index(found[3]) + 1, int(found[2])
        else:
            found = re.fullmatch(r"(\d{4})年(\d+)月(\d+)日(.*)", target)
            weekday = (
                ("星期" + "一二三四五六日"[day.weekday()])
                if language == "zh"
                else "月火水木金土日"[day.weekday()] + "曜日"
            )
            parts = tuple(int(found[group]) for group in (1, 2, 3))
        named = found[1] if language == "de" else found[4] or None
        assert datetime.date(*parts) == day
        assert named == (weekday if "day, " in source else None)


def test_every_format_and_language_comes_equally_often(calendar):
    full, short = (sum(mark in pair.source for pair in calendar.train) for mark in ("day, ", "/"))
    assert abs(full - 750) < 100
    assert abs(short - 750) < 100
    for language in ("de", "zh", "ja"):
        assert abs(sum(pair.language == language for pair in calendar.train) - 1000) < 110


def test_the_days_are_a_hundred_years():
    corpus = dates(size=1, held_out=18_262, languages=["de"])
    days = sorted(day_of(pair.source) for pair in everything(corpus)[1:])
    assert len(set(days)) == 18_262  # half of all days, each once
    assert datetime.date(1970, 1, 1) <= days[0] < datetime.date(1970, 2, 1)
    assert datetime.date(2069, 12, 1) < days[-1] <= datetime.date(2069, 12, 31)
    assert (tasks.DAYS[0], tasks.DAYS[-1]) == (719163, 755687)  # the ordinals of those two
    assert datetime.date.fromordinal(755687) == datetime.date(2069, 12, 31)


def test_held_out_days_never_occur_in_training():
    corpus = dates(size=10_007, held_out=5003)
    learnt = {day_of(pair.source) for pair in corpus.train}
    watched, tested = ([day_of(pair.source) for pair in pairs] for pairs in (corpus.validation, corpus.test["test"]))
    assert not learnt & {*watched, *tested}
    assert len({*watched, *tested}) == 5003
    assert len(learnt) > 8000  # of 31,521 that are left: it is not a few days again and again


def test_dates_have_plain_blanks(monkeypatch):
    """Babel writes narrow or no-break blanks in some languages; a model would learn that one looks like another."""
    text = "".join(pair.target for pair in everything(dates(size=53, languages=("uk", "bg"), held_out=2)))
    assert " р." in text
    assert " г." in text
    monkeypatch.setattr(
        "babel.dates.format_date", lambda *_, **__: "8\xa0March\u202f2024"
    )  # which, its version decides
    assert set(everything(dates(size=3, languages=("de",), held_out=2))) == {Pair("8 March 2024", "8 March 2024", "de")}


def test_dates_have_plain_blanks_whichever_babel_writes(monkeypatch):
    monkeypatch.setattr("babel.dates.format_date", lambda *_, **__: "8.\xa0März\u202f2024")
    assert {pair[:2] for pair in everything(dates(size=3, held_out=2))} == {("8. März 2024",) * 2}


def test_a_corpus_of_one_language_names_it_too():
    assert {pair.language for pair in everything(dates(size=11, languages=("de",), held_out=2))} == {"de"}
    assert {pair.language for pair in everything(numbers(size=11, languages=("zh",), held_out=2))} == {"zh"}


@pytest.mark.parametrize("make", [dates, numbers, software_docs])
def test_languages_that_are_none(make):
    with raises(TypeError, "languages must be a sequence of names such as ('de', 'zh'), got 'de'"):
        make(languages="de")
    with raises(TypeError, "languages must be a sequence of names", "got (4, 5)"):
        make(languages=(4, 5))
    with raises(ValueError, "languages must be at least one, got none"):
        make(languages=())
    with raises(ValueError, "languages must be ", "xx"):
        make(languages=("de", "xx"))


def test_dates_refuse_what_is_no_locale():
    for wrong in ("de-DE", "", "x"):
        with raises(ValueError, "languages must be names that Babel knows", f"got {wrong!r}"):
            dates(languages=("de", wrong))


def test_number_words():
    pairs = everything(numbers(size=3001, held_out=101))
    german = {pair.source: pair.target for pair in pairs if pair.language == "de"}
    chinese = {pair.source: pair.target for pair in pairs if pair.language == "zh"}
    assert german["twenty-one"] == "einundzwanzig"
    assert chinese["twenty-one"] == "二十一"
    assert any("万" in target for target in chinese.values())
    assert any("hunderttausend" in target for target in german.values())
    short = sum(pair.source.count("thousand") == 0 for pair in pairs) / len(pairs)
    assert 0.45 < short < 0.55  # three digits of six


def test_held_out_numbers_never_occur_in_training():
    corpus = numbers(size=5003, held_out=503)
    learnt = {pair.source for pair in corpus.train}
    held = [pair.source for pair in [*corpus.validation, *corpus.test["test"]]]
    assert not learnt & set(held)
    assert len(set(held)) == len(held)
    small = {source for source in learnt if not re.search("hundred|thousand", source)}
    assert 70 < len(small) < 99  # a tenth of the small ones are held out, and not all of them


def test_copying_and_reversing():
    for make, answer in ((copying, lambda row: row), (reversing, lambda row: row[::-1])):
        corpus = make(size=1009, held_out=101, longest=7)
        pairs = everything(corpus)
        assert all(pair.target == answer(pair.source) and pair.source.isdigit() for pair in pairs)
        assert {pair.language for pair in pairs} == {None}
        assert {len(pair.source) for pair in pairs} == {5, 6, 7}
        assert set("".join(pair.source for pair in pairs)) == set("0123456789")
        held = [pair.source for pair in [*corpus.validation, *corpus.test["test"]]]
        assert len(set(held)) == 101
        assert not {pair.source for pair in corpus.train} & set(held)


def test_rows_that_are_held_out_never_come_by_chance():
    corpus = copying(size=30_011, held_out=10_000, longest=5)  # a tenth of all rows there are
    held = {pair.source for pair in [*corpus.validation, *corpus.test["test"]]}
    assert len(held) == 10_000  # each once
    assert not {pair.source for pair in corpus.train} & held


def test_rows_cannot_be_shorter_than_five():
    with raises(ValueError, "longest must be at least 5, got 4"):
        copying(longest=4)


@pytest.mark.parametrize(
    ("call", "package", "extra"),
    [
        (numbers, "cn2an", "numbers"),
        (numbers, "num2words", "numbers"),
        (lambda: from_datasets("wmt14"), "datasets", "datasets"),
    ],
)
def test_an_extra_that_is_not_installed_is_named(monkeypatch, call, package, extra):
    monkeypatch.setitem(sys.modules, package, None)
    with raises(ModuleNotFoundError, package, f'pip install "annotated-transformer[{extra}]"'):
        call()


# Files


@pytest.fixture
def write(tmp_path):
    def write(name: str, data: str | bytes) -> Path:
        path = tmp_path / name
        path.write_bytes(data.encode("utf-8") if isinstance(data, str) else data)
        return path

    return write


def test_lines_of_two_files_are_pairs(write):
    source, target = write("a.en", "One\nTwo, three\n"), write("a.de", "Eins\nZwei, drei")
    assert read_lines(source, str(target)) == [Pair("One", "Eins"), Pair("Two, three", "Zwei, drei")]
    assert read_lines(source, target, "de")[1] == Pair("Two, three", "Zwei, drei", "de")


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        ("a\r\nb\r\n", ["a", "b"]),
        ("\ufeffa\nb\n", ["a", "b"]),  # a mark that some editors put at the start
        (" a \nb\t\n", ["a", "b"]),
        ("a\u2028a\u2029\x85\x0c\x1ca\rc\nb\n", ["a\u2028a\u2029\x85\x0c\x1ca\rc", "b"]),  # separators, and no newlines
        ("\xa0a\n\u3000b\n", ["\xa0a", "\u3000b"]),
    ],
)
def test_a_line_ends_at_a_newline_and_nowhere_else(write, data, lines):
    pairs = read_lines(write("a.en", data), write("a.de", "1\n2\n"))
    assert pairs == [Pair(lines[0], "1"), Pair(lines[1], "2")]


@pytest.mark.parametrize(("ending", "pack"), [(".xz", lzma.compress), (".gz", gzip.compress)])
def test_packed_files_are_read_and_broken_ones_named(write, ending, pack):
    plain, packed = write("a.en", "ä\nb\n"), write(f"a.de{ending}", pack("ü\nd\n".encode()))
    assert read_lines(plain, packed) == [Pair("ä", "ü"), Pair("b", "d")]
    for data in (b"no such thing", pack(b"a\nb\n" * 99)[:-9], pack(b"a\nb\n" * 99)[:20] + bytes(20)):
        with raises(ValueError, f"b.de{ending} cannot be unpacked", "damaged, or not what its name says"):
            read_lines(plain, write(f"b.de{ending}", data))


def test_what_is_not_there_is_named(write, tmp_path):
    there = write("a.en", "a\n")
    with raises(FileNotFoundError, "There is no file", "a.de; the folder has a.en"):
        read_lines(there, tmp_path / "a.de")
    with raises(FileNotFoundError, "There is no folder", "nowhere, where a.de should be"):
        read_lines(there, tmp_path / "nowhere" / "a.de")
    with raises(IsADirectoryError, tmp_path, "is a folder; a file of text was wanted"):
        read_tsv(tmp_path)
    for number in range(30):
        write(f"b{number:02}", "")
    with raises(FileNotFoundError, "the folder has a.en, b00, b01", "b18 and 11 more."):
        read_tsv(tmp_path / "c.tsv")


@pytest.mark.parametrize(
    ("data", "parts"),
    [
        ("für\nüber\n".encode("latin-1"), ["line 1: byte 2, 0xfc, is not UTF-8", "Latin-1"]),
        (b"f\xc3\xbcr\nabc\n\xfcber\n", ["line 3: byte 1, 0xfc, is not UTF-8"]),
        ("für\n".encode("utf-16"), ["line 1: byte 1, 0xff, is not UTF-8", "UTF-16"]),
        ("fur\n".encode("utf-16-le"), ["line 1 has a character of code 0", "UTF-16"]),
        (b"a\nb\0\n", ["line 2 has a character of code 0"]),
        (b"", ["is empty."]),
        (b" \n\r\n\t", ["is empty."]),
    ],
)
def test_what_is_no_text_is_named_by_its_line(write, data, parts):
    good, bad = write("a.en", "a\nb\n"), write("a.de", data)
    for call in (lambda: read_lines(good, bad), lambda: read_lines(bad, good), lambda: read_tsv(bad)):
        with raises(ValueError, bad, *parts):
            call()


@pytest.mark.parametrize(
    ("data", "found"),
    [("", []), ("\n", [""]), ("\ufeff", []), ("a\n\n b\n", ["a", "", " b"]), ("a\n\n", ["a", ""]), ("\na", ["", "a"])],
)
def test_lines_alone_may_be_empty(write, data, found):
    assert tasks.lines(write("a.txt", data)) == found
    assert tasks.lines(str(write("a.txt.gz", gzip.compress(data.encode())))) == found
    with raises(ValueError, "b.txt, line 1: byte 1, 0xff, is not UTF-8"):
        tasks.lines(write("b.txt", b"\xff"))


@pytest.mark.parametrize(
    ("options", "config"),
    [
        ({}, "de-en"),
        ({"target": "fr"}, "fr-en"),
        ({"source": "fr", "target": "en"}, "fr-en"),
        ({"source": "de", "target": "en"}, "de-en"),
        ({"source": "en", "target": "cs"}, "cs-en"),
    ],
)
def test_wmt_is_asked_for_its_part_with_the_languages(monkeypatch, options, config):
    asked = []
    monkeypatch.setattr(
        tasks, "from_datasets", lambda name, config=None, source="en", target="de": asked.append((name, config))
    )
    load("wmt14", **options)
    assert asked == [("wmt14", config)]


def test_an_empty_line_is_named(write):
    good, bad = write("a.en", "a\nb\nc\n"), write("a.de", "a\n \t\nc\n")
    for paths in ((good, bad), (bad, good)):
        with raises(ValueError, bad, "line 2 is empty: remove it, and line 2 of the other file."):
            read_lines(*paths)
    with raises(ValueError, "a.en, line 4 is empty"):  # the likelier reason for one line too many
        read_lines(write("a.en", "a\nb\nc\n\n"), write("a.de", "a\nb\nc\n"))


def test_unequal_counts_are_named_with_the_first_line_without_a_partner(write):
    long, short = write("a.en", "a\nb\nthe third\nd\n"), write("a.de", "a\nb\n")
    with raises(ValueError, f"{long} has 4 lines and {short} has 2", f"{long}, line 3: 'the third'."):
        read_lines(long, short)
    with raises(ValueError, f"{short} has 2 lines and {long} has 4", f"{long}, line 3: 'the third'."):
        read_lines(short, long)


def test_tsv_has_two_columns(write):
    path = write("a.tsv", "One\tEins\r\n Two \t Zwei \n")
    assert read_tsv(path) == [Pair("One", "Eins"), Pair("Two", "Zwei")]
    assert read_tsv(str(path), "de") == [Pair("One", "Eins", "de"), Pair("Two", "Zwei", "de")]


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("no tab", ["line 2 must be source, tab, target; it has 1 columns"]),
        ("a\tb\tc", ["line 2 must be source, tab, target; it has 3 columns"]),
        ("a\t", ["line 2 has no target", r"'a\t'"]),
        ("\tb", ["line 2 has no source", r"'\tb'"]),
        ("", ["line 2 is empty: remove it"]),
        (" \t ", ["line 2 is empty: remove it"]),
        ("a\t ", ["line 2 has no target"]),
    ],
)
def test_a_wrong_line_of_tsv_is_named(write, line, parts):
    path = write("a.tsv", f"x\ty\n{line}\nx\ty\n")
    with raises(ValueError, path, *parts):
        read_tsv(path)


# Folders


@pytest.fixture
def fill(tmp_path, write):
    """Fill a folder: each file with one line, its own name, so that a pair shows where it is from."""

    def fill(*names: str) -> Path:
        for name in names:
            write(name, f"{name}\t{name}\n" if name.endswith("tsv") else f"{name}\n")
        return tmp_path

    return fill


@pytest.mark.parametrize("validation", ["val", "valid", "validation", "dev"])
def test_a_folder_of_pairs_of_files(fill, validation):
    folder = fill(
        "train.en", "train.de", f"{validation}.en", f"{validation}.de", "test_2016.en", "test_2016.de", "test2.tsv",
        "README.md", "notes.en", "train.fr", "contest.de", "train",
    )  # fmt: skip
    (folder / "test.folder.en").mkdir()
    assert read_folder(folder) == Corpus(
        [Pair("train.en", "train.de", "de")],
        [Pair(f"{validation}.en", f"{validation}.de", "de")],
        {"test2": [Pair("test2.tsv", "test2.tsv", "de")], "test_2016": [Pair("test_2016.en", "test_2016.de", "de")]},
    )


def test_a_folder_may_have_other_endings_and_no_test(fill):
    folder = fill("train-big.trg", "dev.trg", "dev.src", "train-big.src")
    expected = Corpus([Pair("train-big.src", "train-big.trg", "trg")], [Pair("dev.src", "dev.trg", "trg")], {})
    assert read_folder(str(folder), source="src", target="trg") == expected
    turned = read_folder(folder, source="trg", target="src")
    assert turned.train == [Pair("train-big.trg", "train-big.src", "src")]


def test_a_folder_of_tsv_and_packed_files(fill, tmp_path):
    fill("train.tsv")
    (tmp_path / "val.en.gz").write_bytes(gzip.compress(b"a\n"))
    (tmp_path / "val.de.xz").write_bytes(lzma.compress(b"b\n"))
    assert read_folder(tmp_path) == Corpus([Pair("train.tsv", "train.tsv", "de")], [Pair("a", "b", "de")], {})


def test_a_folder_that_is_none(fill, tmp_path):
    with raises(FileNotFoundError, "There is no folder", "nowhere"):
        read_folder(tmp_path / "nowhere")
    with raises(NotADirectoryError, "train.tsv is a file; the folder that it is in was wanted"):
        read_folder(fill("train.tsv") / "train.tsv")
    for endings in (("en", "en"), ("tsv", "en"), ("en", "tsv")):
        with raises(ValueError, "source and target must be two endings", str(endings[0])):
            read_folder(tmp_path, *endings)


@pytest.mark.parametrize(
    ("names", "error", "parts"),
    [
        ([], FileNotFoundError, ["has nothing for train: no train.en with train.de, and no train.tsv", "has no files"]),
        (
            ["train.tsv", "x.en"],
            FileNotFoundError,
            ["nothing for validation: no val.en with val.de", "train.tsv, x.en"],
        ),
        (["train.en", "val.tsv"], FileNotFoundError, ["has train.en without train.de", "it has train.en, val.tsv"]),
        (["train.de", "val.tsv"], FileNotFoundError, ["has train.de without train.en"]),
        (["train.tsv", "val.tsv", "test1.en"], FileNotFoundError, ["has test1.en without test1.de"]),
        (["train.tsv", "val.tsv", "dev.tsv"], ValueError, ["several files for validation", "dev and val"]),
        (["train.tsv", "train2.tsv", "val.tsv"], ValueError, ["several files for train", "train and train2"]),
        (["train.tsv", "train.en", "val.tsv"], ValueError, ["has both train.en and train.tsv: leave the pairs in one"]),
        (["train.tsv", "train.tsv.gz"], ValueError, ["has both train.tsv and train.tsv.gz: leave one of them"]),
    ],
)
def test_a_folder_that_lacks_something_or_has_too_much(fill, names, error, parts):
    folder = fill(*names)
    with raises(error, folder, *parts):
        read_folder(folder)


# The corpus that is shipped


@pytest.fixture(scope="module")
def shipped() -> Corpus:
    return software_docs()


def test_the_shipped_corpus_is_what_its_notice_says(shipped):
    notice = (tasks.SOFTWARE_DOCS / "NOTICE.md").read_text(encoding="utf-8")
    for language in ("de", "zh"):
        counts = [sum(pair.language == language for pair in pairs) for pairs in (shipped.train, shipped.validation)]
        counts += [len(shipped.test[f"{language}.{name}"]) for name in ("test_lohelp", "test_loui", "test_ha")]
        assert f"| {language} | {' | '.join(f'{count:,}' for count in counts)} |" in notice
    assert len(shipped.test) == 6
    assert all(pair.language == name[:2] for name, pairs in shipped.test.items() for pair in pairs)
    for name in ("Mozilla Public License 2.0", "Apache License 2.0", "libreoffice-l10n-zh-cn", "homeassistant"):
        assert name in notice
    assert {path.name for path in tasks.SOFTWARE_DOCS.glob("LICENSE*")} == {
        "LICENSE-MPL-2.0.txt",
        "LICENSE-Apache-2.0.txt",
    }


def test_the_shipped_corpus_is_clean(shipped):
    assert sum(path.stat().st_size for path in tasks.SOFTWARE_DOCS.iterdir()) < 3_000_000
    for pair in everything(shipped):
        for text in (pair.source, pair.target):
            assert unicodedata.is_normalized("NFC", text)
            assert not re.search(r"[\x00-\x1f\x7f-\x9f\xad\ufffd]|  |^ | $", text)
            assert re.search(r"[^\W\d_]", text)
    assert all(pair.source != pair.target for pair in [*shipped.train, *shipped.validation])


def test_nothing_that_is_tested_is_trained_on(shipped):
    def letters(pairs: list[Pair]) -> set[str]:
        return {"".join(re.findall(r"[^\W\d_]", pair.source.lower())) for pair in pairs}

    tested = letters([pair for pairs in shipped.test.values() for pair in pairs])
    assert not letters(shipped.train) & (tested | letters(shipped.validation))
    assert not letters(shipped.validation) & tested


def test_one_language_of_the_shipped_corpus(shipped):
    german = software_docs(["de"])
    assert german.train == [pair for pair in shipped.train if pair.language == "de"]
    assert german.validation == [pair for pair in shipped.validation if pair.language == "de"]
    assert list(german.test) == ["de.test_lohelp", "de.test_loui", "de.test_ha"]
    assert {pair.language for pair in everything(german)} == {"de"}


# How it was cleaned


@pytest.mark.parametrize(
    ("source", "target", "reason"),
    [
        ("a good day", "ein guter Tag", None),
        ("a \x92 day", "ein Tag", "control characters"),
        ("a day", "ein\ufffd Tag", "control characters"),
        ("1, 2, 3", "1, 2, drei", "symbols only"),
        ('"one"', '"§ 1"', "symbols only"),
    ],
)
def test_what_is_broken_is_dropped_even_from_a_test(source, target, reason):
    assert clean_corpus.broken(source, target) == reason


@pytest.mark.parametrize(
    ("language", "source", "target", "reason"),
    [
        ("de", "one two", "eins zwei", None),
        ("de", "RAS, TIFF", "ras – (TIFF)", "not translated"),
        ("zh", "the menu", "菜单", None),
        ("zh", "the menu", "the menus", "not translated"),
        ("de", "a" * 10, "b" * 25, None),
        ("de", "a" * 10, "b" * 26, "lengths too different"),
        ("de", "a" * 10, "b" * 4, None),
        ("de", "a" * 10, "b" * 3, "lengths too different"),
        ("zh", "a" * 100, "菜" * 12, None),
        ("zh", "a" * 100, "菜" * 11, "lengths too different"),
        ("zh", "a" * 10, "菜" * 10, None),
        ("zh", "a" * 10, "菜" * 11, "lengths too different"),
    ],
)
def test_what_is_unfit_is_dropped_from_training(language, source, target, reason):
    assert clean_corpus.unfit(language, source, target) == reason


def test_the_raw_pairs_are_cleaned_and_packed(tmp_path, monkeypatch, capsys):
    raw = tmp_path / "raw"
    raw.mkdir()
    content = {
        "de.train": "Good  da\u0308y\tGuten Tag\u00ad\nHELLO, you!\tHallo du\nSee you\tBis dann\nThe end\tDas Ende\n",
        "de.val": "see you (1)\tBis dann (1)\nEnd of line\tZeilenende\n",
        "de.test_lohelp": "Hello you\tHallo du\nTIFF\tTIFF\n1\t2\n",
        "zh.train": "End-of-line\t行的结尾\nthe menu\t菜单\n",
        "zh.val": "hello you 2\t你好二\n",
    }  # fmt: skip
    for name in [f"{language}.{split}" for language in ("de", "zh") for split in clean_corpus.SPLITS]:
        (raw / f"{name}.tsv").write_text(content.get(name, "the last\tdas 末\n"), encoding="utf-8")
    for folder in ("one", "two"):
        monkeypatch.setattr(sys, "argv", ["clean_corpus.py", str(raw), str(tmp_path / folder)])
        clean_corpus.main()
    made = {path.name: path.read_bytes() for path in (tmp_path / "one").iterdir()}
    assert made == {path.name: path.read_bytes() for path in (tmp_path / "two").iterdir()}
    text = {name.removesuffix(".tsv.xz"): lzma.decompress(data).decode() for name, data in made.items()}
    assert text["de.train"] == "Good däy\tGuten Tag\nThe end\tDas Ende\n"
    assert text["de.val"] == "see you (1)\tBis dann (1)\nEnd of line\tZeilenende\n"
    assert text["de.test_lohelp"] == "Hello you\tHallo du\nTIFF\tTIFF\n"
    assert text["zh.train"] == "the menu\t菜单\n"
    assert text["zh.val"] == ""
    report = capsys.readouterr().out
    assert "de.train: 4 pairs, 2 kept; dropped {'also in a test or in validation': 2}\n" in report
    assert "zh.test_ha: 1 pairs, 1 kept; dropped none\n" in report
    (raw / "zh.val.tsv").write_text("a\tb\nc\n", encoding="utf-8")
    with raises(SystemExit, "zh.val.tsv, line 2 must be source, tab, target; it has 1 columns"):
        clean_corpus.main()


# Hugging Face


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """Lay out a data set as WMT's are on the hub, and return what makes it."""
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    datasets.disable_progress_bars()
    folder = tmp_path / "wmt"

    def make(languages=("de", "en"), column="translation", **splits: list[tuple[str | None, str | None]]) -> str:
        features = datasets.Features({column: datasets.Translation(languages=languages)})
        lines = ["---", "configs:", "- config_name: de-en", "  data_files:"]
        for split, pairs in splits.items():
            rows = [{column: dict(zip(("en", languages[0]), pair, strict=True))} for pair in pairs]
            data = datasets.Dataset.from_list(rows, features=features)
            (folder / "de-en").mkdir(parents=True, exist_ok=True)
            data.to_parquet(folder / "de-en" / f"{split}-00000-of-00001.parquet")
            lines += [f"  - split: {split}", f"    path: de-en/{split}-*"]
        (folder / "README.md").write_text("\n".join([*lines, "---", ""]), encoding="utf-8")
        return str(folder)

    yield make
    datasets.enable_progress_bars()


ONE = [("one", "eins")]


def test_a_data_set_in_the_form_of_wmt(hub):
    name = hub(train=[("a", "b"), (" c ", "d\n"), ("", "e"), ("f", None)], validation=ONE, test=[("two", "zwei")])
    assert from_datasets(name, "de-en") == Corpus(
        [Pair("a", "b", "de"), Pair("c", "d", "de")], [Pair("one", "eins", "de")], {"test": [Pair("two", "zwei", "de")]}
    )
    assert from_datasets(name, "de-en", source="de", target="en").validation == [Pair("eins", "one", "en")]


def test_a_data_set_in_another_form_is_refused(hub):
    name = hub(train=ONE, validation=[("one", "eins"), ("two", " ")], test=ONE)
    with raises(ValueError, name, "validation, row 1 has an empty side: ('two', '')"):
        from_datasets(name, "de-en")
    with raises(ValueError, name, "must have 'translation' in 'en' and 'fr'; it has {'translation'"):
        from_datasets(name, "de-en", target="fr")
    with raises(ValueError, name, "must have 'translation' in 'fr' and 'de'"):
        from_datasets(name, "de-en", source="fr")


def test_a_data_set_without_a_split_is_refused(hub):
    name = hub(train=ONE, test=ONE)
    with raises(ValueError, name, "must have a split 'validation'; it has train, test"):
        from_datasets(name, "de-en")


def test_a_data_set_without_translations_is_refused(hub):
    name = hub(train=ONE, test=ONE, validation=ONE, column="pair")
    with raises(ValueError, name, "must have 'translation' in 'en' and 'de'; it has {'pair'"):
        from_datasets(name, "de-en")


@pytest.mark.parametrize(
    ("name", "asked"),
    [("wmt14", "wmt/wmt14"), ("wmt/wmt16", "wmt/wmt16"), ("./wmt14", "./wmt14"), ("wmt145", "wmt145")],
)
def test_the_short_names_of_wmt(monkeypatch, name, asked):
    datasets = pytest.importorskip("datasets")
    calls = []
    monkeypatch.setattr(datasets, "load_dataset", lambda *arguments: calls.append(arguments) or {})
    with raises(ValueError, name, "must have a split 'train'"):
        from_datasets(name, "fr-en")
    assert calls == [(asked, "fr-en")]


# By name


def test_load_finds_tasks_folders_and_data_sets(monkeypatch, fill, shipped, calendar):
    assert load("dates", size=3001, held_out=211) == calendar
    assert load("numbers", size=5, held_out=3) == numbers(size=5, held_out=3)
    assert load("copying", size=5, longest=7) == copying(size=5, longest=7)
    assert load("reversing", seed=3) == reversing(seed=3)
    assert load("software-docs") == shipped
    assert len(load("software-docs", languages=("zh",)).test) == 3
    folder = fill("train.tsv", "val.src", "val.trg")
    assert load(folder, source="src", target="trg") == load(str(folder), source="src", target="trg")
    assert load(folder, source="src", target="trg").validation == [Pair("val.src", "val.trg", "trg")]
    datasets = pytest.importorskip("datasets")
    calls = []
    monkeypatch.setattr(datasets, "load_dataset", lambda *arguments: calls.append(arguments) or {})
    for options in ({}, {"config": "fr-en", "target": "fr"}):
        with raises(ValueError, "wmt14 must have a split"):
            load("wmt14", **options)
    assert calls == [("wmt/wmt14", "de-en"), ("wmt/wmt14", "fr-en")]


def test_a_folder_called_like_a_task(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dates").mkdir()
    assert len(load("dates", size=7, held_out=2).train) == 7
    for name in ("./dates", Path("dates")):
        with raises(FileNotFoundError, "dates has nothing for train"):
            load(name)


def test_load_names_what_there_is(tmp_path):
    with raises(FileNotFoundError, "no folder 'dats', and no such task: these are dates, numbers", "wmt14"):
        load("dats")
    with raises(NotADirectoryError, "is a file"):
        load(Path(__file__))
    with raises(TypeError, "dates takes no 'source'; what it takes is size, languages, seed, held_out"):
        load("dates", source="en")
    with raises(TypeError, "takes no 'seed'; what it takes is folder, source, target"):
        load(tmp_path, seed=1)
