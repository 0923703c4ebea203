"""Colours are told apart by everyone, settings are the book's, and an image has the same bytes on every run."""

import itertools
import subprocess
import sys

import matplotlib as mpl
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from annotated_transformer import claims, style

LOOKS = {**style.ROLES, **{f"series {index}": look for index, look in enumerate(style.SERIES)}}


@pytest.fixture(autouse=True)
def own_settings():
    with mpl.rc_context():
        yield


def luminance(colour):
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a, b):
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("name", list(LOOKS))
def test_every_line_stands_out_from_white(name):
    assert contrast(LOOKS[name].colour, "white") >= 3


@pytest.mark.parametrize("verdict", list(claims.VERDICTS))
def test_every_box_has_an_edge_that_is_seen_on_light_and_dark_pages(verdict):
    assert contrast(style.VERDICTS[verdict], "#ffffff") >= 3
    assert contrast(style.VERDICTS[verdict], "#121212") >= 3


def test_verdicts_are_the_ledgers():
    assert list(style.VERDICTS) == list(claims.VERDICTS)


@pytest.mark.parametrize("group", [list(style.ROLES.values()), list(style.SERIES)])
def test_looks_differ_in_marker_line_and_hatch_too(group):
    for one, other in itertools.combinations(group, 2):
        assert one.colour != other.colour
        assert one.marker != other.marker
        assert one.line != other.line
        assert one.hatch != other.hatch


def test_the_papers_three_have_their_colours():
    assert (style.QUERY.colour, style.KEY.colour, style.VALUE.colour) == ("#0072B2", "#D55E00", "#009E73")


def test_looks_of_names():
    assert style.looks(["query", "keys", "queries"]) == [style.QUERY, style.KEY, style.QUERY]
    assert style.looks(["a", "value", "b"]) == [style.SERIES[0], style.VALUE, style.SERIES[1]]
    assert style.looks([]) == []


def test_too_many_series_are_refused():
    with pytest.raises(ValueError, match="at most 5 series"):
        style.looks(list("abcdef"))


def test_use_sets_the_books_look():
    mpl.rcdefaults()
    style.use()
    assert mpl.rcParams["figure.figsize"][0] == style.WIDTH
    assert mpl.rcParams["figure.constrained_layout.use"]
    assert mpl.rcParams["savefig.bbox"] is None
    assert mpl.rcParams["font.size"] == 10


def drawn():
    style.use()
    figure = Figure()
    figure.subplots().plot([1, 2], label="a")
    return figure


def test_the_same_figure_gives_the_same_bytes(tmp_path):
    one, two = style.save(drawn(), tmp_path / "1.png"), style.save(drawn(), tmp_path / "2.png")
    assert one.read_bytes() == two.read_bytes()
    assert b"Software" not in one.read_bytes()
    assert b"Matplotlib" not in one.read_bytes()


def test_the_image_is_as_wide_as_its_figure(tmp_path):
    content = style.save(drawn(), tmp_path / "1.png").read_bytes()
    assert int.from_bytes(content[16:20], "big") == round(style.WIDTH * style.DPI)


def test_only_png_is_written(tmp_path):
    with pytest.raises(ValueError, match=r"must end in \.png"):
        style.save(drawn(), tmp_path / "1.svg")
    assert not list(tmp_path.iterdir())


def test_a_notebook_gets_the_same_bytes_and_a_width(monkeypatch, tmp_path):
    DisplayFormatter = pytest.importorskip("IPython.core.formatters").DisplayFormatter
    pytest.importorskip("matplotlib_inline")

    class Shell:
        kernel = None
        display_formatter = DisplayFormatter()

    monkeypatch.setattr("IPython.get_ipython", Shell)
    figure = drawn()
    data, metadata = Shell.display_formatter.format(figure, include=["image/png"])
    assert data["image/png"] == style.save(figure, tmp_path / "1.png").read_bytes()
    assert metadata["image/png"] == {"width": 560}


@pytest.mark.parametrize("line", ["from annotated_transformer import figures", "style.use()"])
def test_without_matplotlib_the_error_says_what_to_install(line):
    program = f"import sys; sys.modules['matplotlib'] = None; from annotated_transformer import style; {line}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    last = done.stderr.strip().splitlines()[-1]
    assert last == 'ModuleNotFoundError: figures need Matplotlib: pip install "matplotlib>=3.8"'


def test_matplotlib_is_loaded_only_when_a_figure_is_drawn():
    modules = ", ".join(f"annotated_transformer.{name}" for name in ("style", "show", "recordings", "check", "claims"))
    code = f"import sys, {modules}; sys.exit('matplotlib' in sys.modules or 'IPython' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
