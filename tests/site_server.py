"""A web server for a built site, in a subfolder and with the site's own page for missing addresses, as on GitHub."""

from __future__ import annotations

import functools
import http.server
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parents[1]
SITE = Path(os.environ.get("BOOK_SITE", ROOT / "_build" / "html"))
"""The built site that the tests look at."""

sys.path.insert(0, str(ROOT / "_ext"))
import site_address  # noqa: E402

SUBFOLDER = urlsplit(site_address.find(ROOT).base_url).path or "/some/where/"
"""Where the site is served: at its own path, which its page for missing addresses relies on, or anywhere."""


class _Handler(http.server.SimpleHTTPRequestHandler):
    """Serves the folder below ``SUBFOLDER``, and nothing outside it."""

    def translate_path(self, path: str) -> str:
        if not path.startswith(SUBFOLDER):
            return os.devnull + "/nothing"
        return super().translate_path(path.removeprefix(SUBFOLDER.rstrip("/")))

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        page = Path(self.directory, "404.html")
        if code != 404 or not page.exists():
            super().send_error(code, message, explain)
            return
        body = page.read_bytes()
        self.send_response(code)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: pytest shows what fails."""


@contextmanager
def serve(site: Path) -> Iterator[str]:
    """Serve a folder while the block runs, and give the address of its root, with a slash at the end."""
    handler = functools.partial(_Handler, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}{SUBFOLDER}"
        finally:
            server.shutdown()
            thread.join()
