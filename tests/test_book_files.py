"""The book's files are found in an installed package and in a checkout, and nothing outside the book is."""

from pathlib import Path

import pytest

from annotated_transformer import book_files


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    installed, checkout = tmp_path / "package" / "book", tmp_path / "book"
    (checkout / "recordings").mkdir(parents=True)
    (checkout / "claims.yml").write_text("checkout")
    (checkout / "recordings" / "x.json").write_text("{}")
    monkeypatch.setattr(book_files, "_INSTALLED", installed)
    monkeypatch.setattr(book_files, "_CHECKOUT", checkout)
    return installed, checkout


def test_the_real_ledger_is_found():
    assert book_files.find("claims.yml").is_file()


def test_a_checkout_reads_the_originals(places):
    _, checkout = places
    assert book_files.find("claims.yml") == checkout / "claims.yml"
    assert book_files.find("recordings/x.json") == checkout / "recordings" / "x.json"


def test_an_installed_package_reads_its_own_copy(places):
    installed, _ = places
    installed.mkdir(parents=True)
    (installed / "claims.yml").write_text("installed")
    assert book_files.find("claims.yml").read_text() == "installed"


def test_a_missing_file_is_named_with_both_places(places):
    with pytest.raises(FileNotFoundError, match=r"no file 'recordings/none\.json'.*package.* and "):
        book_files.find("recordings/none.json")


def test_a_folder_is_not_a_file(places):
    with pytest.raises(FileNotFoundError, match="no file 'recordings'"):
        book_files.find("recordings")


@pytest.mark.parametrize("name", ["", ".", "/etc/passwd", "../pyproject.toml", "a/../../b", "a\\b", "C:/x", "a\0b"])
def test_names_outside_the_book_are_refused(name):
    with pytest.raises(ValueError, match="path below book/"):
        book_files.find(name)


@pytest.mark.parametrize("name", [None, 3, Path("claims.yml")])
def test_names_must_be_strings(name):
    with pytest.raises(TypeError, match="name must be a string"):
        book_files.find(name)


def test_checkout(places, monkeypatch):
    _, checkout = places
    assert book_files.checkout() == checkout
    monkeypatch.setattr(book_files, "_CHECKOUT", checkout / "none")
    with pytest.raises(FileNotFoundError, match="run this in a checkout"):
        book_files.checkout()
