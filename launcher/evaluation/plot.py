"""Draws an evaluation into a PNG: acceptance by position, a line for each proposer. An optional part (extra `eval`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from launcher.evaluation.report import Evaluation


def check_plot(file: Path) -> None:
    """Raises ValueError if no plot can be made there, before anything is measured for it."""
    if file.suffix != ".png":
        raise ValueError(f"plot is {file}; it must be a .png file")
    if not file.resolve().parent.is_dir():
        raise ValueError(f"plot is {file}, whose folder does not exist; make it first")
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ValueError("matplotlib is not installed; `pip install '.[eval]'` in the repository brings it") from error


def save_plot(evaluations: Sequence[Evaluation], file: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(7, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for one in evaluations:
        shares = one.figures.acceptance_per_position
        label = f"{one.name}: {one.figures.acceptance_length:.2f}"
        axes.plot(range(1, len(shares) + 1), shares, marker="o", label=label)
    axes.set(xlabel="draft token", ylabel="accepted, of those submitted there", ylim=(0, 1.02))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
    axes.legend(title="mean acceptance length")
    figure.savefig(file, dpi=150)
