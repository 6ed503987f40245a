"""The experiments of the paper (section 6), figure by figure, and what this run says about each of its claims.

`pieces` computes the numbers, `claims` judges them, `figures` draws them, `page` writes them down.
"""

from experiments.reproduce.claims import Claim, claims
from experiments.reproduce.figures import draw
from experiments.reproduce.page import write_claims
from experiments.reproduce.pieces import run

__all__ = ["Claim", "claims", "draw", "run", "write_claims"]
