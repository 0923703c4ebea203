"""The program behind `make serve`: it gives an address only where it serves."""

import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest

from tools import serve


def test_a_taken_port_is_named_with_the_next(capsys):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        assert serve.main([str(port)]) == 1
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"Port {port} is taken: make serve PORT={port + 1}\n")


def test_a_port_that_cannot_be_is_refused(capsys):
    assert serve.main(["70000"]) == 1
    assert "No server at port 70000: " in capsys.readouterr().err


@pytest.mark.skipif(sys.platform == "win32", reason="Windows sends no SIGINT to one process")
def test_the_site_is_served_until_ctrl_c(tmp_path):
    site = tmp_path / "_build/html"
    site.mkdir(parents=True)
    (site / "index.html").write_text("Here it is.")
    (tmp_path / "tools").mkdir()
    program = tmp_path / "tools/serve.py"
    program.write_bytes(Path(serve.__file__).read_bytes())
    with subprocess.Popen([sys.executable, program, "0"], stdout=-1, stderr=-1, text=True) as server:
        address = server.stdout.readline().split()[1]
        with urlopen(address) as page:
            assert page.read() == b"Here it is."
        server.send_signal(signal.SIGINT)
        assert "Traceback" not in server.communicate(timeout=20)[1]
    assert server.returncode == 0
