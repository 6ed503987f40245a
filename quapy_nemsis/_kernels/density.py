"""Gaussian kernel densities."""

from __future__ import annotations

import math

import numpy as np

from quapy_nemsis._jit import Routine, cubes, jitable, real, reals, tables, types

#: Centres are taken in blocks of so many, a power of 2. A block is left out where it is too far away to matter.
BLOCK = 64
# What is left out of a sum is less than e⁻³⁰ of it.
_NEGLIGIBLE = 30.0
# ln 2 as a sum of two numbers, the first with zeros at its end, so that small multiples of it are exact.
_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
# Adding this number to a smaller one rounds it to an integer, which then stands in the last bits.
_ROUND = 6755399441055744.0
_ONE = 1023 << 52  # the bits of 1.0


def blocks(centres: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Centres as `log_densities` takes them: in blocks of columns, with the corners of the box around each block.

    Neighbours should follow each other, so that boxes are small. The last block is filled up with centres at infinity.
    """
    m, d = centres.shape
    n_blocks = -(-m // BLOCK)
    filled = np.full((n_blocks * BLOCK, d), np.inf)
    filled[:m] = centres
    firsts = np.arange(0, m, BLOCK)
    lowest, highest = (extreme.reduceat(centres, firsts) for extreme in (np.minimum, np.maximum))
    cube = filled.reshape(n_blocks, BLOCK, d).transpose(0, 2, 1)
    return (
        np.ascontiguousarray(cube),
        np.ascontiguousarray(lowest.T),
        np.ascontiguousarray(highest.T),
    )


@jitable
def _exponentials(x, bits, scale):
    """Return Σ exp(−x) over a block, with all x from 0 to 700, to 15 digits; x is overwritten.

    With k = round(−x/ln 2), exp(−x) = 2ᵏ·exp(r), where |r| ≤ ln 2 / 2 and exp(r) is a polynomial. The processor does
    all of that for several entries at once, which it does not do for `math.exp`. ``scale`` is a view of ``bits``.
    """
    for i in range(BLOCK):
        rounded = -1.4426950408889634 * x[i] + _ROUND
        scale[i] = rounded
        k = rounded - _ROUND
        r = (-x[i] - k * _LN2_HIGH) - k * _LN2_LOW
        value = 1.0 / 479001600.0
        value = value * r + 1.0 / 39916800.0
        value = value * r + 1.0 / 3628800.0
        value = value * r + 1.0 / 362880.0
        value = value * r + 1.0 / 40320.0
        value = value * r + 1.0 / 5040.0
        value = value * r + 1.0 / 720.0
        value = value * r + 1.0 / 120.0
        value = value * r + 1.0 / 24.0
        value = value * r + 1.0 / 6.0
        value = value * r + 0.5
        value = value * r + 1.0
        x[i] = value * r + 1.0
    for i in range(BLOCK):
        bits[i] = (bits[i] << 52) + _ONE
    for i in range(BLOCK):
        x[i] *= scale[i]
    half = BLOCK // 2
    while half:
        for i in range(half):
            x[i] += x[i + half]
        half //= 2
    return x[0]


def _log_densities(points, centres, lowest, highest, m, bandwidth, found):
    """Write the logarithm of the density of each point: ln Σₖ exp(−‖x − cₖ‖²/(2h²)) − ln m − d·ln(h·√(2π)).

    ``centres``, of which there are m, and the corners of their boxes are those of `blocks`.
    """
    n_points, d = points.shape
    n_blocks = centres.shape[0]
    over = 1.0 / (2.0 * bandwidth * bandwidth)
    constant = math.log(m) + d * math.log(bandwidth) + 0.5 * d * math.log(2.0 * math.pi)
    limit = _NEGLIGIBLE + math.log(m)
    bounds, distances = np.empty(n_blocks), np.empty((n_blocks, BLOCK))
    part, bits = np.empty(BLOCK), np.empty(BLOCK, np.int64)
    scale = bits.view(np.float64)
    for i in range(n_points):
        bounds[:] = 0.0
        for j in range(d):
            x = points[i, j]
            low, high = lowest[j], highest[j]
            for b in range(n_blocks):
                outside = max(max(low[b] - x, x - high[b]), 0.0)
                bounds[b] += outside * outside
        nearest = np.argmin(bounds)
        least = np.inf
        # The nearest block comes first, so that others can be left out.
        for turn in range(n_blocks + 1):
            b = nearest if turn == 0 else turn - 1
            if turn > 0 and (b == nearest or (bounds[b] - least) * over > limit):
                continue
            part[:] = 0.0
            for j in range(d):
                x = points[i, j]
                column = centres[b, j]
                for k in range(BLOCK):
                    difference = column[k] - x
                    part[k] += difference * difference
            distance = distances[b]
            for k in range(BLOCK):
                distance[k] = part[k]
                if part[k] < least:
                    least = part[k]
        total = 0.0
        for b in range(n_blocks):
            if (bounds[b] - least) * over <= limit:
                distance = distances[b]
                for k in range(BLOCK):
                    part[k] = min((distance[k] - least) * over, 700.0)
                total += _exponentials(part, bits, scale)
        found[i] = math.log(total) - least * over - constant


log_densities = Routine(
    _log_densities, types.void(tables, cubes, tables, tables, types.int64, real, reals)
)
