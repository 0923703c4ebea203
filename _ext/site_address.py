"""Where the book lives: its repository, the branch that is shown, and the address of the site.

Nothing here is needed to build the book. What is not known is the empty string, and the site then has no button or tag
that depends on it.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

_GITHUB = re.compile(
    r"(?:https://(?:[^@/]+@)?github\.com/|git@github\.com:|ssh://git@github\.com/)"
    r"(?P<owner>[\w-]+)/(?P<name>[\w.-]+?)(?:\.git)?/?"
)


@dataclass(frozen=True)
class SiteAddress:
    """The addresses a built site may point to; each is empty where it is not known.

    Attributes:
        repository: ``https://github.com/owner/name``.
        branch: The branch that the buttons open.
        colab_branch: The branch whose notebooks Colab opens; there they carry the repository's address.
        base_url: The address of the site's root, with a slash at the end.
    """

    repository: str
    branch: str
    colab_branch: str
    base_url: str


def find(root: Path, environ: Mapping[str, str] = os.environ) -> SiteAddress:
    """Return the addresses of the book whose checkout is at ``root``.

    The environment decides: ``BOOK_REPOSITORY``, ``BOOK_BRANCH``, ``BOOK_COLAB_BRANCH``, ``BOOK_BASE_URL``. A variable
    that is set and empty means that there is none. Without ``BOOK_REPOSITORY``, the remote ``origin`` is taken where it
    is on GitHub; without ``BOOK_BASE_URL``, the address that GitHub Pages gives the repository; without
    ``BOOK_COLAB_BRANCH``, the branch of the other buttons.

    Raises:
        ValueError: A variable holds something that is not such an address.
    """
    given = environ.get("BOOK_REPOSITORY")
    repository = github_address(_origin(root)) if given is None else _checked_repository(given)
    given = environ.get("BOOK_BASE_URL")
    base_url = pages_address(repository) if given is None else _checked_base(given)
    branch = environ.get("BOOK_BRANCH") or "main"
    return SiteAddress(repository, branch, environ.get("BOOK_COLAB_BRANCH") or branch, base_url)


def github_address(url: str) -> str:
    """Return ``https://github.com/owner/name`` for any form of a GitHub address, the empty string for all others."""
    match = _GITHUB.fullmatch(url.strip())
    return f"https://github.com/{match['owner']}/{match['name']}" if match else ""


def pages_address(repository: str) -> str:
    """Return the address GitHub Pages gives to a repository; the empty string if there is none."""
    if not repository:
        return ""
    owner, name = repository.rsplit("/", 2)[1:]
    host = f"{owner.lower()}.github.io"
    return f"https://{host}/" if name.lower() == host else f"https://{host}/{name}/"


def _checked_repository(value: str) -> str:
    address = github_address(value)
    if value.strip() and not address:
        raise ValueError(f"BOOK_REPOSITORY must be an address such as https://github.com/owner/name, got {value!r}")
    return address


def _checked_base(value: str) -> str:
    value = value.strip()
    if not value:
        return ""
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.netloc or parts.query or parts.fragment:
        raise ValueError(f"BOOK_BASE_URL must be an address such as https://example.org/book/, got {value!r}")
    return value.rstrip("/") + "/"


def _origin(root: Path) -> str:
    """Return the git remote ``origin`` of a checkout whose top is ``root``; the empty string if there is none."""

    def git(*arguments: str) -> str:
        try:
            done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False)
        except OSError:  # no git on this machine
            return ""
        return done.stdout.strip() if done.returncode == 0 else ""

    top = git("rev-parse", "--show-toplevel")
    if not top or Path(top).resolve() != root.resolve():  # a copy of the book inside someone else's repository
        return ""
    return git("config", "--get", "remote.origin.url")
