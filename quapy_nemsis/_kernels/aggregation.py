"""Aggregations of many samples of predictions, with the arithmetic of QuaPy.

Sample s consists of the rows ``rows[starts[s]:starts[s + 1]]`` of a table of predictions. Samples are independent, so
that any part of them can be computed on its own.

Where QuaPy's estimate depends on which of two numbers is smaller, as in the search for the best match of histograms,
rounding can decide. So `match` and `search` add in the order of numpy's sum, and are compiled without fused
multiply-adds: they return QuaPy's estimates to the last bit.
"""

from __future__ import annotations

import math

import numpy as np

from quapy_nemsis._jit import (
    EXACT,
    REORDERED,
    Routine,
    flags,
    integers,
    jitable,
    real,
    reals,
    tables,
    types,
)

HELLINGER, TOPSOE = 0, 1


def _average(table, rows, starts, shares):
    """Write for each sample the mean of its rows, with sum 1."""
    n_classes = table.shape[1]
    for s in range(shares.shape[0]):
        q = shares[s]
        q[:] = 0.0
        for i in range(starts[s], starts[s + 1]):
            for j in range(n_classes):
                q[j] += table[rows[i], j]
        total = 0.0
        for j in range(n_classes):
            q[j] /= starts[s + 1] - starts[s]
            total += q[j]
        for j in range(n_classes):
            q[j] /= total


def _expect(posteriors, rows, starts, training, epsilon, most, prevalences, converged):
    """Write for each sample what expectation-maximisation finds, starting from the prevalences of training.

    Stops as QuaPy's EMQ does: after at least twelve steps, when the mean change of a prevalence is less than
    ``epsilon``, or after so many steps; ``converged`` tells which.
    """
    n_classes = len(training)
    ratio, sums = np.empty(n_classes), np.empty(n_classes)
    for s in range(prevalences.shape[0]):
        n_rows = starts[s + 1] - starts[s]
        # With the rows along columns, the processor takes several at once.
        part, factors = np.empty((n_classes, n_rows)), np.empty(n_rows)
        for i in range(n_rows):
            for j in range(n_classes):
                part[j, i] = posteriors[rows[starts[s] + i], j]
        p = prevalences[s]
        p[:] = training
        converged[s] = False
        for step in range(most):
            factors[:] = 0.0
            for j in range(n_classes):
                column, weight = part[j], p[j] / training[j]
                ratio[j] = weight
                for i in range(n_rows):
                    factors[i] += weight * column[i]
            for i in range(n_rows):
                factors[i] = 1.0 / factors[i]
            for j in range(n_classes):
                column, total = part[j], 0.0
                for i in range(n_rows):
                    total += column[i] * factors[i]
                sums[j] = total
            change = 0.0
            for j in range(n_classes):
                new = sums[j] * ratio[j] / n_rows
                change += abs(new - p[j])
                p[j] = new
            if step > 10 and change / n_classes < epsilon:
                converged[s] = True
                break


@jitable
def _histogram(values, rows, first, last, edges, widths, counts, density):
    """Write the density of values in bins between edges, of equal width up to rounding, as numpy's histogram does.

    A value on an edge belongs to the bin above, the last edge to the last bin. Values outside do not count.
    """
    n_bins = len(edges) - 1
    counts[:n_bins] = 0
    span = edges[n_bins] - edges[0]
    total = 0
    for i in range(first, last):
        x = values[rows[i]]
        if x >= edges[0] and x <= edges[n_bins]:
            b = min(int((x - edges[0]) / span * n_bins), n_bins - 1)
            if x < edges[b]:
                b -= 1
            elif b < n_bins - 1 and x >= edges[b + 1]:
                b += 1
            counts[b] += 1
            total += 1
    for b in range(n_bins):
        density[b] = counts[b] / widths[b] / total


@jitable
def _numpy_sum(x, n):
    """Σ of the first n entries, in the order in which numpy adds up to 128 numbers."""
    if n < 8:
        total = 0.0
        for i in range(n):
            total += x[i]
        return total
    whole = n - n % 8
    for i in range(8, whole):
        x[i % 8] += x[i]
    total = ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + (x[6] + x[7]))
    for i in range(whole, n):
        total += x[i]
    return total


@jitable
def _distance(share, positive, negative, sample, divergence, terms):
    """Divergence between the mixture of two histograms, with this share of the positive one, and that of a sample."""
    n_bins = len(positive)
    for b in range(n_bins):
        mixed, seen = share * positive[b] + (1.0 - share) * negative[b], sample[b]
        if divergence == HELLINGER:
            root = math.sqrt(mixed) - math.sqrt(seen)
            terms[b] = root * root
        else:
            over = mixed + seen + 1e-20
            terms[b] = mixed * math.log((2.0 * mixed + 1e-20) / over) + seen * math.log(
                (2.0 * seen + 1e-20) / over
            )
    total = _numpy_sum(terms, n_bins)
    return math.sqrt(total) if divergence == HELLINGER else total


def _match(values, rows, starts, edges, widths, positive, negative, candidates, found):
    """Write for each sample the candidate share whose mixture of two histograms is nearest to that of the sample.

    Nearest by Hellinger distance; the first of several.
    """
    n_bins = len(positive)
    counts = np.empty(n_bins, np.int64)
    density, terms = np.empty(n_bins), np.empty(n_bins)
    for s in range(len(found)):
        _histogram(values, rows, starts[s], starts[s + 1], edges, widths, counts, density)
        least = np.inf
        found[s] = candidates[0]
        for c in range(len(candidates)):
            distance = _distance(candidates[c], positive, negative, density, HELLINGER, terms)
            if distance < least:
                least = distance
                found[s] = candidates[c]


def _search(values, rows, starts, edges, widths, positive, negative, divergence, tolerance, found):
    """Write for each sample the share that minimises the divergence of histograms, by ternary search."""
    n_bins = len(positive)
    counts = np.empty(n_bins, np.int64)
    density, terms = np.empty(n_bins), np.empty(n_bins)
    for s in range(len(found)):
        _histogram(values, rows, starts[s], starts[s + 1], edges, widths, counts, density)
        left, right = 0.0, 1.0
        while abs(right - left) >= tolerance:
            low, high = left + (right - left) / 3.0, right - (right - left) / 3.0
            below = _distance(low, positive, negative, density, divergence, terms)
            above = _distance(high, positive, negative, density, divergence, terms)
            if below > above:
                left = low
            else:
                right = high
        found[s] = (left + right) / 2.0


def _sweep(ranks, rows, starts, tpr, fpr, prevalences):
    """Write for each sample the medians, over all thresholds, of the adjusted counts of both classes.

    Thresholds are in ascending order. The rank of a row is the number of thresholds that its score reaches.
    """
    n_thresholds = len(tpr)
    counts = np.empty(n_thresholds + 1, np.int64)
    positive, negative = np.empty(n_thresholds), np.empty(n_thresholds)
    for s in range(prevalences.shape[0]):
        first, last = starts[s], starts[s + 1]
        counts[:] = 0
        for i in range(first, last):
            counts[ranks[rows[i]]] += 1
        reached = 0
        for t in range(n_thresholds - 1, -1, -1):
            reached += counts[t + 1]
            share = (reached / (last - first) - fpr[t]) / (tpr[t] - fpr[t])
            positive[t] = min(max(share, 0.0), 1.0)
            negative[t] = 1.0 - positive[t]
        prevalences[s, 0] = np.median(negative)
        prevalences[s, 1] = np.median(positive)


_samples = (integers, integers)
average = Routine(_average, types.void(tables, *_samples, tables))
expect = Routine(
    _expect,
    types.void(tables, *_samples, reals, real, types.int64, tables, flags),
    fastmath=REORDERED,
)
match = Routine(_match, types.void(reals, *_samples, *[reals] * 6), fastmath=EXACT)
search = Routine(
    _search,
    types.void(reals, *_samples, *[reals] * 4, types.int64, real, reals),
    fastmath=EXACT,
)
sweep = Routine(_sweep, types.void(integers, *_samples, reals, reals, tables), fastmath=EXACT)
