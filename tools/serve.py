"""Serves the built site on this machine, at the port given: ``python tools/serve.py 8000``."""

from __future__ import annotations

import argparse
import errno
import functools
import os
import sys
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

SITE = Path(__file__).resolve().parents[1] / "_build" / "html"


class Server(ThreadingHTTPServer):
    """A server that takes no port from another; Windows would let it."""

    allow_reuse_address = os.name != "nt"


def main(arguments: list[str] | None = None) -> int:
    """Serve until Ctrl-C; return the exit status."""
    parser = argparse.ArgumentParser(description="Serve the built site on this machine.")
    parser.add_argument("port", nargs="?", type=int, default=8000, help="(default: %(default)s)")
    port = parser.parse_args(arguments).port
    handler = functools.partial(SimpleHTTPRequestHandler, directory=str(SITE))
    try:
        server = Server(("127.0.0.1", port), handler)
    except (OSError, OverflowError) as error:
        taken = getattr(error, "errno", None) == errno.EADDRINUSE
        why = f"Port {port} is taken: make serve PORT={port + 1}" if taken else f"No server at port {port}: {error}"
        print(why, file=sys.stderr)
        return 1
    with server:
        print(f"Reading: http://127.0.0.1:{server.server_port}/   (Ctrl-C ends it)", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
