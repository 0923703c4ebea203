"""The paper's numbers as data, what follows from them, and the page that lists them all."""

from __future__ import annotations

import math
import re
import sys
from pathlib import Path

import pytest
import torch
from shapes import MODEL

from annotated_transformer import costs, decoding, paper, paper_page
from annotated_transformer.config import BASE, BIG
from annotated_transformer.experiments.measure import matmul_flops
from annotated_transformer.model import Transformer
from annotated_transformer.training import TrainingSettings

# Copied from the paper a second time, in the paper's own order of columns, so that a slip in the data does not pass.
TABLE_1 = """
self-attention | n^2 d | 1 | 1
recurrent | n d^2 | n | n
convolutional | k n d^2 | 1 | \\log_k n
self-attention (restricted) | r n d | 1 | n / r
"""
TABLE_2 = """
ByteNet 23.75 - - -
Deep-Att + PosUnk - 39.2 - 1.0e20
GNMT + RL 24.6 39.92 2.3e19 1.4e20
ConvS2S 25.16 40.46 9.6e18 1.5e20
MoE 26.03 40.56 2.0e19 1.2e20
Deep-Att + PosUnk Ensemble - 40.4 - 8.0e20
GNMT + RL Ensemble 26.30 41.16 1.8e20 1.1e21
ConvS2S Ensemble 26.36 41.29 7.7e19 1.2e21
Transformer (base) 27.3 38.1 3.3e18 3.3e18
Transformer (big) 28.4 41.8 2.3e19 2.3e19
"""
TABLE_3 = """
base 6 512 2048 8 64 64 0.1 0.1 100K 4.92 25.8 65
A1 . . . 1 512 512 . . . 5.29 24.9 -
A2 . . . 4 128 128 . . . 5.00 25.5 -
A3 . . . 16 32 32 . . . 4.91 25.8 -
A4 . . . 32 16 16 . . . 5.01 25.4 -
B1 . . . . 16 . . . . 5.16 25.1 58
B2 . . . . 32 . . . . 5.01 25.4 60
C1 2 . . . . . . . . 6.11 23.7 36
C2 4 . . . . . . . . 5.19 25.3 50
C3 8 . . . . . . . . 4.88 25.5 80
C4 . 256 . . 32 32 . . . 5.75 24.5 28
C5 . 1024 . . 128 128 . . . 4.66 26.0 168
C6 . . 1024 . . . . . . 5.12 25.4 53
C7 . . 4096 . . . . . . 4.75 26.2 90
D1 . . . . . . 0.0 . . 5.77 24.6 -
D2 . . . . . . 0.2 . . 4.95 25.5 -
D3 . . . . . . . 0.0 . 4.67 25.3 -
D4 . . . . . . . 0.2 . 5.47 25.7 -
E . . . . . . . . . 4.92 25.7 -
big 6 1024 4096 16 . . 0.3 . 300K 4.33 26.4 213
"""
TABLE_4 = [88.3, 90.4, 90.4, 91.7, 91.3, 91.3, 91.3, 92.1, 92.1, 92.7, 93.0, 93.3]
OUTSIDE_THE_TABLES = {  # by place: every number of the text
    "abstract": ["28.4", "over 2", "41.8", "3.5", "8"],
    "1": ["twelve", "eight"],
    "3.1": ["6", "6", "two", "a third"],
    "3.1, 3.3": ["512"],
    "3.2.1": ["a single"],
    "footnote 4": ["0 and 1", "0 and $d_k$"],
    "3.2.2": ["8", "64"],
    "3.2.3": ["three"],
    "3.3": ["two", "1", "2048"],
    "3.3, Eq. 2": ["0"],
    "3.4": ["$\\sqrt{d_\\text{model}}$", "the same"],
    "3.5": ["10000", "$2\\pi$", "$10000 \\cdot 2\\pi$"],
    "4": ["$n < d$", "$O(n / k)$", "$O(\\log_k n)$", "a factor of $k$", "$O(k n d + n d^2)$", "$k = n$"],
    "5.1": ["4.5 million", "about 37000", "36 million", "32000", "about 25000", "about 25000"],
    "5.2": ["one", "8", "0.4", "100,000", "1.0", "300,000", "12", "3.5"],
    "5.3": ["0.9", "0.98", "$10^{-9}$", "4000"],
    "5.3, Eq. 3": ["−0.5", "−0.5", "−1.5"],
    "5.4": ["three", "0.1", "0.1"],
    "6.1": [
        *["27.3", "28.4", "more than 2.0", "3.5", "8", "41.0", "less than 1/4", "0.1", "0.3"],
        *["5", "20", "10", "4", "0.6", "50"],
    ],
    "footnote 5": ["2.8", "3.7", "6.0", "9.5"],
    "6.2": ["0.9"],
    "6.3": ["4", "1024", "about 40K", "about 17M", "16K", "32K", "22", "23", "300", "21", "0.3"],
    "Figure 3": ["5 of 6"],
    "Figure 4": ["5 of 6", "5 and 6"],
    "Figure 5": ["5 of 6"],
}


def rows(table):
    return table.strip().splitlines()


def optional(text):
    return None if text == "-" else float(text)


# The data ------------------------------------------------------------------------------------------------------------


def test_table_1():
    assert [" | ".join(layer) for layer in paper.TABLE_1] == rows(TABLE_1)


def test_table_2():
    for line, row in zip(rows(TABLE_2), paper.TABLE_2, strict=True):
        model, *values = line.rsplit(" ", 4)
        assert (row.model, *map(optional, values)) == row[: len(row) - 1]
        assert row.ensemble == ("Ensemble" in model)


@pytest.mark.parametrize(
    ("line", "row"),
    [*zip(rows(TABLE_3), paper.TABLE_3, strict=True)],
    ids=lambda x: x[0] if isinstance(x, tuple) else "",
)
def test_table_3(line, row):
    name, *settings, perplexity, bleu, millions = line.split()
    assert (row.row, row.perplexity, row.bleu, row.millions) == (
        *(name, float(perplexity), float(bleu)),
        optional(millions),
    )
    *model, smoothing, steps = settings
    changed = dict(zip(("N", "d_model", "d_ff", "h", "d_k", "d_v", "p_drop"), model, strict=True))
    for field, printed in changed.items():
        value = getattr(row.config(), field)
        if printed != ".":
            assert value == float(printed)
        elif field not in ("d_k", "d_v"):
            assert value == getattr(BASE, field)
        else:
            assert value == (row.config().d_model // row.config().h)
    assert row.settings.get("eps_ls", 0.1) == (0.1 if smoothing == "." else float(smoothing))
    assert row.settings.get("steps", 100_000) == (300_000 if steps == "300K" else 100_000)
    assert row.config().positions == ("learned" if name == "E" else "sinusoidal")


def test_table_3_has_base_and_big():
    assert paper.TABLE_3[0].config() == BASE
    assert paper.TABLE_3[-1].config() == BIG


def test_table_4():
    assert [row.f1 for row in paper.TABLE_4] == TABLE_4
    assert [row.training for row in paper.TABLE_4] == ["WSJ only"] * 5 + ["semi-supervised"] * 5 + [
        "multi-task",
        "generative",
    ]


def test_settings_of_sections_5_and_6():
    assert paper.BASE_RUN == (BASE, 100_000, 0.4, 12)
    assert paper.BIG_RUN == (BIG, 300_000, 1.0, 84)
    assert [tuple(corpus)[:2] for corpus in paper.CORPORA.values()] == [(4.5e6, 37_000), (36e6, 32_000)]
    assert (paper.TOKENS, paper.GPUS, paper.CHECKPOINT_MINUTES) == (25_000, 8, 10)
    assert paper.TFLOPS == {"K80": 2.8, "K40": 3.7, "M40": 6.0, "P100": 9.5}
    assert paper.AVERAGED == {"base": 5, "big": 20}
    assert paper.PARSING == (4, 1024, 40_000, 17_000_000, 16_000, 32_000, 21, 0.3, 300)


# What follows --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", paper.TABLE_3, ids=lambda row: row.row)
def test_parameters_are_counted_and_computed(row):
    assert paper.count(row.config()) == sum(costs.parameters(row.config()).values())
    if row.millions is None:
        with pytest.raises(ValueError, match=f"variation must print a number of parameters; row {row.row} of Table 3"):
            paper.implied_vocabulary(row)
        return
    least, most = paper.implied_vocabulary(row)
    for vocabulary, fits in ((least - 1, False), (least, True), (most, True), (most + 1, False)):
        millions = paper.count(row.config(vocab_size=vocabulary)) / 1e6
        assert (math.floor(millions + 0.5) == row.millions) is fits
    assert not least <= 37_000 <= most


def test_one_vocabulary_fits_all_but_big():
    assert paper.common_vocabulary() == (41_004, 41_208)
    assert paper.implied_vocabulary(paper.TABLE_3[-1]) == (35_368, 36_344)
    assert paper.common_vocabulary(attention_bias=True) == (40_932, 41_160)
    assert paper.common_vocabulary(tied="target") == (20_502, 20_604)
    assert paper.common_vocabulary(tied="none") == (13_668, 13_736)
    with pytest.raises(TypeError, match="config must be a TransformerConfig"):
        paper.count({})


def test_costs_of_table_2():
    for run, printed in ((paper.BASE_RUN, 3.3e18), (paper.BIG_RUN, 2.3e19)):
        assert float(f"{paper.training_cost(run):.1e}") == printed
    assert paper.training_cost(paper.BASE_RUN) == pytest.approx(12 * 3600 * 8 * 9.5e12)


def test_what_the_model_needs():
    run = paper.Run(MODEL, 3, 0.5, 0.25)
    model = Transformer(MODEL.replace(p_drop=0.0))
    pair = torch.ones(1, 5, dtype=torch.long)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        counted = matmul_flops(lambda: model(pair, pair).sum().backward())
    assert paper.model_cost(run, 5) == pytest.approx(3 * 25_000 / 5 * counted)
    assert paper.utilisation(run, 5) == pytest.approx(paper.model_cost(run, 5) / (900 * 8 * 9.5e12))
    assert paper.utilisation(paper.BASE_RUN) == pytest.approx(0.290, abs=5e-4)
    assert paper.utilisation(paper.BIG_RUN) == pytest.approx(0.421, abs=5e-4)
    assert paper.utilisation(paper.BASE_RUN, 10) < paper.utilisation(paper.BASE_RUN)
    for function in (paper.model_cost, lambda run, length: paper.epochs(run, paper.Corpus(1, 1, ""), length)):
        with pytest.raises(ValueError, match="length must be at least 1, got 0"):
            function(run, 0)


def test_time_and_tokens():
    assert paper.schedule_hours(paper.BASE_RUN) == pytest.approx(100 / 9)
    assert paper.schedule_hours(paper.BIG_RUN) == pytest.approx(250 / 3)
    german, french = paper.CORPORA.values()
    assert paper.epochs(paper.BASE_RUN, german) == pytest.approx(22.22, abs=0.01)
    assert paper.epochs(paper.BIG_RUN, french, 50) == pytest.approx(7.5e9 / 50 / 36e6)
    assert paper.averaged_steps(paper.BASE_RUN, 5) == 6000
    assert paper.averaged_steps(paper.BIG_RUN, 20) == 11_400
    assert paper.averaged_steps(paper.BIG_RUN, 1) == 0


def test_table_1_computed():
    n, d, k, r = 7, 11, 3, 5
    assert [layer.operations(n, d, k, r) for layer in paper.TABLE_1] == [539, 847, 2541, 385]
    assert [paper.crossover(width) for width in (1, 13, 512)] == [1, 13, 512]
    assert paper.attention_core(n) == 4 * n**2 * 512
    assert paper.attention_core(n, MODEL) == 2 * n**2 * MODEL.h * (MODEL.d_k + MODEL.d_v)


def test_longest_wavelength():
    assert paper.longest_wavelength(512) == pytest.approx(9646.6, abs=0.05)
    assert paper.longest_wavelength(7) == pytest.approx(10_000 ** (6 / 7))
    with pytest.raises(ValueError, match="d_model must be at least 2"):
        paper.longest_wavelength(1)


# The list ------------------------------------------------------------------------------------------------------------

NUMBERS = paper_page.numbers()


def test_every_number_of_the_text_is_listed():
    listed = {}
    for number in NUMBERS:
        if number.part != "follows" and not number.place.startswith("Table"):
            listed.setdefault(number.place, []).append(number.printed)
    assert {place: sorted(values) for place, values in listed.items()} == {
        place: sorted(values) for place, values in OUTSIDE_THE_TABLES.items()
    }


def of(place, what):
    return [number.printed for number in NUMBERS if number.place == place and what in number.what]


def power(text):
    mantissa, exponent = text.split("e")
    return f"${mantissa} \\cdot 10^{{{exponent}}}$"


def test_every_cell_of_the_tables_is_listed():
    for line in rows(TABLE_1):
        name, *cells = line.split(" | ")
        assert [number.printed for number in NUMBERS if number.place == f"Table 1, {name}"] == [
            f"$O({cell})$" for cell in cells
        ]
    for line in rows(TABLE_2):
        model, german, french, *cost = line.rsplit(" ", 4)
        assert of(f"Table 2, {model}", "BLEU") == [cell for cell in (german, french) if cell != "-"]
        printed = [power(cell) for cell in (cost[:1] if "Transformer" in model else cost) if cell != "-"]
        assert of(f"Table 2, {model}", "operations") == printed
    for line in rows(TABLE_3):
        row, *settings, perplexity, bleu, millions = line.split()
        place = f"Table 3, {row}"
        assert of(place, "perplexity") == [perplexity]
        assert of(place, "BLEU") == [bleu]
        assert of(place, "parameters") == ([] if millions == "-" else [millions])
        (printed,) = of(place, "settings")
        assert re.findall(r"(?<== )[\d.]+|\d+K", printed) == [cell for cell in settings if cell != "."]
    assert of("Table 4", "F1") == [f"{f1}" for f1 in TABLE_4]


def value(text):
    """The last number in a cell; a power of ten included."""
    text = text.replace(",", "").replace("−", "-")
    if power := re.search(r"([\d.]+) \\cdot 10\^\{(-?\d+)\}", text):
        return float(f"{power[1]}e{power[2]}")
    found = re.findall(r"-?\d+(?:\.\d+)?", text)
    return float(found[-1]) if found else None


def test_ours_is_theirs_or_the_difference_is_explained():
    for number in NUMBERS:
        assert number.kind in paper_page.KINDS
        assert number.part in paper_page.PARTS
        assert (number.ours == "") == (number.kind == "quoted"), number
        if number.kind != "recomputed" or number.note or number.part == "follows" or "," in number.printed:
            continue
        ours, theirs = value(number.ours), value(number.printed)
        assert ours == theirs, number


def test_what_has_a_note_is_computed_all_the_same():
    ours = {(number.place, number.what): number.ours for number in NUMBERS}
    assert ours["6.2", "BLEU lost by a single head"] == "0.9"
    for row in paper.TABLE_3:
        if "d_v" in row.settings:
            assert value(ours[f"Table 3, {row.row}", "settings"]) == row.settings["d_v"]


def test_settings_are_the_packages():
    for number in NUMBERS:
        if number.kind == "setting" and "Table 3" not in number.place:
            assert value(number.ours) == value(number.printed), number


def test_settings_hold_for_whoever_trains():
    settings = TrainingSettings(max_tokens=1, steps=5000)
    assert (settings.beta_1, settings.beta_2, settings.epsilon, settings.eps_ls) == (0.9, 0.98, 1e-9, 0.1)
    assert settings.warmup_steps == 4000


def test_a_changed_default_would_show(monkeypatch):
    monkeypatch.setattr(decoding, "beam_search", lambda beam=5, alpha=0.7, max_extra=51: None)
    ours = [number.ours for number in paper_page.numbers() if "beam_search" in number.link]
    assert ours == ["5", "0.7", "51"]


def test_parts_are_tables():
    lines = [line for part in paper_page.PARTS for line in paper_page.markdown(part).splitlines()]
    assert len(lines) == len(NUMBERS) + 2 * len(paper_page.PARTS)
    assert all(line.count("|") == 5 for line in lines)
    with pytest.raises(ValueError, match=r"part must be one of promises, model, .* got 'table-5'"):
        paper_page.markdown("table-5")


# The page ------------------------------------------------------------------------------------------------------------


def test_the_page_shows_every_part_once_and_in_order(root):
    page = (root / "book" / "numbers.md").read_text(encoding="utf-8")
    assert tuple(re.findall(r"^```\{numbers\} (\S+)$", page, re.MULTILINE)) == paper_page.PARTS


def test_what_the_page_says_is_what_comes_out(root):
    page = (root / "book" / "numbers.md").read_text(encoding="utf-8")
    least, most = paper.common_vocabulary()
    assert f"{least:,} to {most:,}" in page
    for run in (paper.BASE_RUN, paper.BIG_RUN):
        assert f"{100 * paper.utilisation(run):.0f} %" in page


def test_the_links_lead_to_pages_of_the_book(root):
    toc = (root / "_toc.yml").read_text(encoding="utf-8")
    for number in NUMBERS:
        for target in re.findall(r"\]\(([^)#]+)\.(?:ipynb|md)\)", number.link + number.note):
            assert f"file: book/{target}\n" in toc + "\n", number


def test_the_directive_shows_the_list(tmp_path, root):
    pytest.importorskip("myst_nb", reason="the site's tools are not installed: pip install -e .[book]")
    soup = pytest.importorskip("bs4").BeautifulSoup
    from sphinx.testing.util import SphinxTestApp

    sys.path.insert(0, str(root / "_ext"))
    source = Path(tmp_path, "source")
    source.mkdir()
    (source / "index.md").write_text("# Page\n\n```{numbers} figures\n```\n\n```{numbers} table-5\n```\n")
    (source / "conf.py").write_text(
        "extensions = ['myst_nb', 'numbers_page']\nmyst_enable_extensions = ['dollarmath']\n"
    )
    app = SphinxTestApp("html", srcdir=source)
    try:
        app.build()
        page = soup((Path(app.outdir) / "index.html").read_text(encoding="utf-8"), "html.parser")
        assert "part must be one of" in app.warning.getvalue()
    finally:
        app.cleanup()
    cells = [[cell.get_text() for cell in row.find_all("td")] for row in page.table.tbody.find_all("tr")]
    figures = [number for number in NUMBERS if number.part == "figures"]
    assert [row[:3] for row in cells] == [[f"{n.what} ({n.place})", n.printed, n.ours] for n in figures]
    assert all(row[3].startswith("Reproduced") for row in cells)
