"""Estimate what training would cost on many machines, from constants that were measured on this one.

A row of d features (dense, float64) costs a pass

* 8d bytes of it, and 9 for its place in the order and its label;
* 4d flops for the score and the row's norm, and 4d more if it moves the weights and their average;
* a + b·d nanoseconds: a for the measure and its gradients, b for the row. Both are fitted to the benchmark ``width``.

A round on a cluster is a pass of every worker over its rows and the exchange of states: three vectors of d numbers and
fourteen more, there and back again. So, with n rows on W workers,

    round = n/W · (a + b·d) + W · (2 · state/network + task)

where *task* is what Dask spends on a task, measured as well, and the exchange is counted as if one after the other.
Rows are read once, at the speed of the disk, if they fit into the workers' memory; otherwise in every round.
"""

from __future__ import annotations

import numpy as np

from experiments.bench.tables import BenchTable

#: What is assumed of the machines: bytes a second from disk and over the network, bytes of memory.
DISK, NETWORK, MEMORY = 1e9, 1.25e9, 128e9


def per_row(width: BenchTable) -> tuple[float, float]:
    """Return a and b of a + b·d, in seconds, by least squares of relative errors over the timed widths."""
    d = np.array([row["features"] for row in width.rows], dtype=float)
    seconds = 1e-9 * np.array([row["NEMSIS, float64"] for row in width.rows])
    design = np.column_stack([np.ones(len(d)), d]) / seconds[:, np.newaxis]
    a, b = np.linalg.lstsq(design, np.ones(len(d)), rcond=None)[0]
    return float(a), float(b)


def state_bytes(d: int) -> int:
    """Return the size of a state that is sent: three vectors of d numbers, and fourteen more."""
    return 8 * (3 * d + 14)


def cost(
    width: BenchTable,
    task: float,
    n_rows: float = 1e10,
    d: int = 100,
    workers: int = 100,
    rounds: int = 5,
) -> BenchTable:
    """Estimate the seconds of each part from the table ``width`` and the seconds that Dask spends on a task."""
    a, b = per_row(width)
    local = n_rows / workers
    share = local * 8 * d
    state = state_bytes(d)
    parts = {
        f"reading {share / 1e9:.0f} GB a worker, {'once' if share < MEMORY else 'in every round'}": (
            share / DISK * (1 if share < MEMORY else rounds)
        ),
        f"{rounds} passes over {local:,.0f} rows a worker, {1e9 * (a + b * d):.0f} ns each": (
            rounds * local * (a + b * d)
        ),
        f"exchange of {workers} states of {state / 1e3:.1f} kB, {rounds} times": (
            rounds * workers * 2 * state / NETWORK
        ),
        f"Dask, {workers} tasks a round, {1e3 * task:.1f} ms each": rounds * workers * task,
    }
    total = sum(parts.values())
    return BenchTable(
        "cost",
        f"What {n_rows:.0e} rows x {d} would cost on {workers} workers of one core each",
        [
            *({"part": part, "seconds": s, "share": s / total} for part, s in parts.items()),
            {"part": "all", "seconds": total, "share": 1.0},
        ],
        f"A row costs {1e9 * a:.0f} ns and {1e9 * b:.2f} ns per feature (fitted to the table of widths). Assumed: "
        f"{DISK / 1e9:g} GB/s from disk, {NETWORK / 1e9:g} GB/s over the network, {MEMORY / 1e9:.0f} GB of memory a "
        "worker, workers as fast as this machine, nobody late, step size and radius chosen on the client in a second.",
    )
