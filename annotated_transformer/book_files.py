"""Where the files of the book are found: the list of claims, the recordings of long experiments.

They are written in the book's own folder, ``book/``. An installed package carries a copy of them beside its modules, in
``annotated_transformer/book/``; a checkout reads the originals.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath

__all__ = ["checkout", "find"]

_PACKAGE = Path(__file__).resolve().parent
_INSTALLED = _PACKAGE / "book"
_CHECKOUT = _PACKAGE.parent / "book"


def find(name: str) -> Path:
    """Path of one file of the book, in the installed package or in the checkout.

    Args:
        name: Path below ``book/``, with forward slashes: ``"claims.yml"``, ``"recordings/variance.json"``.

    Raises:
        TypeError: ``name`` is not a string.
        ValueError: ``name`` is empty, absolute, or leads out of the book's folder.
        FileNotFoundError: There is no such file; the message says where it was looked for.
    """
    if not isinstance(name, str):
        raise TypeError(f"name must be a string such as 'claims.yml', got {type(name).__name__}.")
    path = PurePosixPath(name)
    if not path.parts or path.is_absolute() or ".." in path.parts or "\\" in name or ":" in name or "\0" in name:
        raise ValueError(f"name must be a path below book/, such as 'claims.yml' or 'recordings/x.json', got {name!r}.")
    places = [folder / path for folder in (_INSTALLED, _CHECKOUT)]
    for place in places:
        if place.is_file():
            return place
    looked = " and ".join(str(place) for place in places)
    raise FileNotFoundError(f"The book has no file {name!r}: looked for {looked}.")


def checkout() -> Path:
    """The book's own folder, where a new file belongs; only a checkout has one.

    Raises:
        FileNotFoundError: The package was installed without the book around it.
    """
    if not _CHECKOUT.is_dir():
        raise FileNotFoundError(f"There is no book beside the package ({_CHECKOUT}): run this in a checkout.")
    return _CHECKOUT
