"""Draw assets/social-card.png, which shows when someone shares a page: ``python tools/make_social_card.py``."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

CARD = Path(__file__).resolve().parents[1] / "assets" / "social-card.png"
WIDTH, HEIGHT = 1200, 630  # pixels, the size that social networks ask for
INK, PAPER, FAINT = "#e8edf2", "#10161d", "#3a4653"
COLOURS = "#3aa0dc", "#f0803c", "#2fc796", "#3aa0dc", "#f0803c"

# A causal head over five words: each row is a query, attending to itself and to what came before.
WEIGHTS = (
    (1.00,),
    (0.35, 0.90),
    (0.55, 0.35, 0.80),
    (0.25, 0.95, 0.45, 0.70),
    (0.40, 0.30, 0.85, 0.35, 0.95),
)


def draw() -> Figure:
    """Return the card: the name of the book beside the weights of one attention head."""
    figure = Figure(figsize=(WIDTH / 100, HEIGHT / 100), dpi=100, facecolor=PAPER)
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, WIDTH), ylim=(HEIGHT, 0))
    axes.axis("off")
    side, step, left, top = 64, 76, 748, 128
    for row, weights in enumerate(WEIGHTS):
        for column in range(len(WEIGHTS)):
            shown = column < len(weights)
            axes.add_patch(
                FancyBboxPatch(
                    (left + column * step, top + row * step),
                    side,
                    side,
                    boxstyle="round,pad=0,rounding_size=10",
                    facecolor=COLOURS[column] if shown else "none",
                    edgecolor="none" if shown else FAINT,
                    linewidth=2,
                    alpha=weights[column] if shown else 1,
                )
            )
    title = "Attention,\nTaken Apart"
    subtitle = "“Attention Is All You Need”,\nsection by section,\nin notebooks you can run"
    axes.text(80, 250, title, color=INK, fontsize=52, fontweight="bold", va="center", linespacing=1.25)
    axes.text(80, 420, subtitle, color=INK, fontsize=22, va="center", linespacing=1.5)
    return figure


if __name__ == "__main__":
    draw().savefig(CARD, metadata={"Software": None})
