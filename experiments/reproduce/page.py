"""The page that shows the claims and the figures."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from experiments.rendering import Block, Grid, Items, Picture, Text, write_page
from experiments.report import machine_blocks, write_csv
from experiments.reproduce.claims import Claim
from experiments.reproduce.pieces import TITLES


def write_claims(
    claims: list[Claim],
    pictures: dict[str, Figure],
    facts: dict[str, str],
    folder: Path,
    seeds: int,
    command: str,
) -> Path:
    """Write report.html, report.md with its figures, and claims.csv; return the path of the first."""
    head = ["Figure", "The paper says", "Judged by", "This run", "Held for"]
    rows = [[c.figure, c.text, c.rule, c.verdict, _cases(c)] for c in claims]
    blocks: list[Block] = [
        Text("h1", "The paper's experiments, run again"),
        Text(
            "p",
            "P. Kar, S. Li, H. Narasimhan, S. Chawla, F. Sebastiani. Online Optimization Methods for the "
            f"Quantification Problem. KDD 2016. Splits: {seeds}, 70 % for training. A claim is supported if it held in "
            "four fifths of the cases (in half of them if it says often), partly if in half as many.",
        ),
        Grid("Claims of the paper, and what this run says", head, rows, words=True),
        Grid("Data", ["Name", "What it is"], [[*fact] for fact in facts.items()], words=True),
    ]
    for figure, picture in pictures.items():
        title = f"Figure {figure.removeprefix('fig')}: {TITLES[figure]}"
        texts = [(c.text, c.numbers) for c in claims if c.figure == figure]
        alt = f"{title}; the numbers are below."
        blocks += [
            Text("h2", title),
            Picture(figure, picture, _caption(figure), alt),
            Items(texts),
        ]
    numbers = [[*row, claim.numbers] for row, claim in zip(rows, claims, strict=True)]
    write_csv(numbers, [*head, "Numbers"], folder / "claims.csv")
    return write_page(
        "The paper's experiments, run again", [*blocks, *machine_blocks(command)], folder
    )


def _cases(claim: Claim) -> str:
    held = [name for name, fact in claim.held.items() if fact]
    return f"{len(held)} of {len(claim.held)}" + (f": {', '.join(held)}" if held else "")


def _caption(figure: str) -> str:
    return {
        "fig2": "Mean and standard deviation of BA, median of KLD over splits.",
        "fig3": "Median over splits, with the least and the greatest value.",
        "fig4": "Mean and standard deviation over splits.",
    }.get(figure, "Median over splits; bands hold the middle half.")
