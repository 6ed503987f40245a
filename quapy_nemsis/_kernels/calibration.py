"""Best fits of calibrations: Newton's method with bounds, where each step reads the points once.

`fit_curve` is for two classes and a piecewise linear function of the score, `fit_offsets` for a temperature and offsets
of several classes. Both minimise a convex function of a few parameters, of which some must not be negative. Each step
minimises its second-order expansion exactly within the bounds, and is halved as long as it does not lower the function
enough.
"""

from __future__ import annotations

import math

import numpy as np

from quapy_nemsis._jit import Routine, codes, flags, integers, jitable, real, reals, tables, types

# A step that changes no parameter by more than this share is the last one: what it leaves is about the square of that.
_STILL = 1e-7
_MOST_TRIALS, _MOST_HALVINGS = 1000, 60
# How much lower the function must be, as a share of what its slope promises, and the rounding error of its values.
_LOWER, _ROUNDING = 1e-4, 1e-13
# A pivot is at least this share of its diagonal entry.
_PIVOT = 1e-13


@jitable
def _on_face(curvature, slope, places, n, factor, out):
    """Minimise ½·dᵀHd + s·d over n of the coordinates, at some places; write these of d to ``out``."""
    for i in range(n):
        for k in range(i + 1):
            total = curvature[places[i], places[k]]
            for t in range(k):
                total -= factor[i, t] * factor[k, t]
            if i == k:
                least = max(_PIVOT * curvature[places[i], places[i]], 1e-300)
                factor[i, i] = math.sqrt(max(total, least))
            else:
                factor[i, k] = total / factor[k, k]
    for i in range(n):
        total = -slope[places[i]]
        for t in range(i):
            total -= factor[i, t] * out[t]
        out[i] = total / factor[i, i]
    for i in range(n - 1, -1, -1):
        total = out[i]
        for t in range(i + 1, n):
            total -= factor[t, i] * out[t]
        out[i] = total / factor[i, i]


@jitable
def _step(curvature, gradient, at, first, last, step):
    """Write to ``step`` the d that minimises ½·dᵀHd + g·d, where x + d ≥ 0 at the places from ``first`` to ``last``.

    ``at``, x, is within the bounds. An active-set method: coordinates at their bounds are held, the others are free.
    """
    n = gradient.shape[0]
    factor, out, slope = np.empty((n, n)), np.empty(n), np.empty(n)
    places = np.empty(n, dtype=np.int64)
    held = np.zeros(n, dtype=np.bool_)
    for j in range(n):
        step[j] = 0.0
        held[j] = first <= j < last and at[j] <= 0.0 and gradient[j] >= 0.0
    for _ in range(10 * n):
        # From the present point to the minimum over the free coordinates, or until one of them reaches its bound.
        n_free = 0
        for j in range(n):
            total = gradient[j]
            for i in range(n):
                total += curvature[j, i] * step[i]
            slope[j] = total
            if not held[j]:
                places[n_free] = j
                n_free += 1
        _on_face(curvature, slope, places, n_free, factor, out)
        length, stopped = 1.0, -1
        for i in range(n_free):
            j = places[i]
            if first <= j < last and at[j] + step[j] + out[i] < 0.0:
                reached = (at[j] + step[j]) / -out[i]
                if reached < length or stopped < 0:
                    length, stopped = reached, j
        for i in range(n_free):
            step[places[i]] += length * out[i]
        if stopped >= 0:
            step[stopped] = -at[stopped]
            held[stopped] = True
            continue
        # A coordinate at its bound whose slope is negative is set free.
        steepest, freed = 0.0, -1
        for j in range(n):
            if held[j]:
                total, size = gradient[j], abs(gradient[j])
                for i in range(n):
                    part = curvature[j, i] * step[i]
                    total += part
                    size += abs(part)
                if total < -1e-12 * size and total < steepest:
                    steepest, freed = total, j
        if freed < 0:
            return
        held[freed] = False


@jitable
def _is_lower(moved_value, value, promised):
    """Whether a step has lowered the function enough; ``promised`` is its slope times the step."""
    return moved_value <= value + _LOWER * promised + _ROUNDING * abs(value)


@jitable
def _progress(gradient, step, at):
    """What a step promises (its slope times the step), and whether it is so small that it is the last one."""
    promised, largest, change = 0.0, 1.0, 0.0
    for j in range(step.shape[0]):
        promised += gradient[j] * step[j]
        largest = max(largest, abs(at[j]))
        change = max(change, abs(step[j]))
    return promised, change <= _STILL * largest


@jitable
def _curve_moments(distances, positive, weights, starts, widths, penalty, at, gradient, curvature):
    """Penalised loss of a curve (see `fit_curve`) at parameters ``at``, its gradient and its curvature."""
    size = at.shape[0]
    base, row = at[0], np.zeros(size)
    row[0] = 1.0
    for j in range(size):
        gradient[j] = 0.0
        for k in range(size):
            curvature[j, k] = 0.0
    value = 0.0
    for piece in range(size - 1):
        # A point of a piece has the row of features ``row``, plus its distance in the place of the piece.
        place = piece + 1
        slope = at[place]
        g = gu = h = hu = huu = 0.0
        for i in range(starts[piece], starts[piece + 1]):
            u, weight = distances[i], weights[i]
            z = base + slope * u
            small = math.exp(-abs(z))
            over = 1.0 / (1.0 + small)
            share = over if z >= 0.0 else small * over
            wrong = share - 1.0 if positive[i] else share
            loss = math.log1p(small)
            if (z < 0.0) == positive[i]:
                loss += abs(z)
            value += weight * loss
            wrong *= weight
            spread = weight * small * over * over
            g += wrong
            gu += wrong * u
            h += spread
            spread *= u
            hu += spread
            huu += spread * u
        for j in range(place):
            gradient[j] += g * row[j]
            for k in range(place):
                curvature[j, k] += h * row[j] * row[k]
            curvature[j, place] += hu * row[j]
            curvature[place, j] += hu * row[j]
        gradient[place] += gu
        curvature[place, place] += huu
        # The first piece is below the first knot, so that nothing of it lies below the points of others.
        if 0 < piece < size - 2:
            row[place] = widths[piece - 1]
            base += slope * widths[piece - 1]
    for j in range(size):
        pull = 0.0
        for k in range(size):
            pull += penalty[j, k] * at[k]
            curvature[j, k] += penalty[j, k]
        gradient[j] += pull
        value += 0.5 * pull * at[j]
    return value


def _fit_curve(distances, positive, weights, starts, widths, penalty, at, curvature):
    """Minimise Σ wᵢ·(ln(1 + exp zᵢ) − yᵢ·zᵢ) + ½·aᵀPa over the parameters a of a piecewise linear curve z.

    The first parameter is free; the others, the slopes of the pieces, are not negative. Points are grouped by pieces:
    those of piece p are at the places from ``starts[p]`` to ``starts[p + 1]``. A distance is that of a point to the
    knot at which its piece begins, for the first piece to that at which it ends (negative). ``widths`` are those of the
    pieces between knots. ``at`` holds the parameters to start from, and then the best ones, where ``curvature`` is the
    second derivative. Returns the minimum.
    """
    size = at.shape[0]
    gradient, step, moved = np.empty(size), np.zeros(size), np.empty(size)
    second = np.empty((size, size))
    points = (distances, positive, weights, starts, widths, penalty)
    value, promised, length, still, halvings = np.inf, 0.0, 1.0, False, 0
    for _ in range(_MOST_TRIALS):
        for j in range(size):
            moved[j] = at[j] + length * step[j]
            if j > 0:
                moved[j] = max(moved[j], 0.0)
        moved_value = _curve_moments(*points, moved, gradient, second)
        # The values before and after the last step may differ by rounding errors only.
        if still or _is_lower(moved_value, value, length * promised):
            for j in range(size):
                at[j] = moved[j]
                for k in range(size):
                    curvature[j, k] = second[j, k]
            value = moved_value
            if still:
                break
            _step(second, gradient, at, 1, size, step)
            promised, still = _progress(gradient, step, at)
            length, halvings = 1.0, 0
        else:
            length *= 0.5
            halvings += 1
            if halvings == _MOST_HALVINGS:
                break
    return value


@jitable
def _offset_moments(scores, weights, linear, precision, at, shares, gradient, curvature):
    """Penalised loss at a temperature and offsets ``at`` (see `fit_offsets`), its gradient and its curvature."""
    n_classes = scores.shape[1]
    size = 1 + n_classes
    for j in range(size):
        gradient[j] = 0.0
        for k in range(size):
            curvature[j, k] = 0.0
    value = 0.0
    for i in range(scores.shape[0]):
        highest = -np.inf
        for j in range(n_classes):
            shares[j] = at[0] * scores[i, j] + at[1 + j]
            highest = max(highest, shares[j])
        total = mean = 0.0
        for j in range(n_classes):
            shares[j] = math.exp(shares[j] - highest)
            total += shares[j]
            mean += shares[j] * scores[i, j]
        over = 1.0 / total
        mean *= over
        weight = weights[i]
        value += weight * (highest + math.log(total))
        gradient[0] += weight * mean
        for j in range(n_classes):
            away = scores[i, j] - mean
            share = shares[j] * over
            shares[j] = share
            share *= weight
            curvature[0, 0] += share * away * away
            gradient[1 + j] += share
            curvature[1 + j, 0] += share * away
            curvature[1 + j, 1 + j] += share
            for k in range(j + 1):
                curvature[1 + j, 1 + k] -= share * shares[k]
    value -= linear[0] * at[0]
    gradient[0] -= linear[0]
    for j in range(1, size):
        value -= (linear[j] - 0.5 * precision * at[j]) * at[j]
        gradient[j] += precision * at[j] - linear[j]
        curvature[j, j] += precision
        for k in range(j):
            curvature[k, j] = curvature[j, k]
    return value


def _fit_offsets(scores, labels, weights, rest, precision, at, curvature):
    """Minimise −Σᵢ wᵢ Σⱼ tᵢⱼ·ln softmaxⱼ(T·fᵢ + b) + ½·c·‖b‖² over T ≥ 0 and offsets b.

    The target tᵢⱼ is 1 − r for the label of a point, and r/(K − 1) for each other class, where r is ``rest`` and the
    precision is c. ``scores``, of which each row may be changed by a constant, are best at most 0. ``at`` holds T and b
    to start from, and then the best ones, where ``curvature`` is the second derivative. Returns the minimum.
    """
    n_classes = scores.shape[1]
    size = 1 + n_classes
    linear, shares = np.zeros(size), np.empty(n_classes)
    other = rest / (n_classes - 1)
    for i in range(scores.shape[0]):
        for j in range(n_classes):
            target = weights[i] * (1.0 - rest if labels[i] == j else other)
            linear[0] += target * scores[i, j]
            linear[1 + j] += target
    gradient, step, moved = np.empty(size), np.zeros(size), np.empty(size)
    second = np.empty((size, size))
    points = (scores, weights, linear, precision)
    value, promised, length, still, halvings = np.inf, 0.0, 1.0, False, 0
    for _ in range(_MOST_TRIALS):
        for j in range(size):
            moved[j] = at[j] + length * step[j]
        moved[0] = max(moved[0], 0.0)
        moved_value = _offset_moments(*points, moved, shares, gradient, second)
        if still or _is_lower(moved_value, value, length * promised):
            for j in range(size):
                at[j] = moved[j]
                for k in range(size):
                    curvature[j, k] = second[j, k]
            value = moved_value
            if still:
                break
            _step(second, gradient, at, 0, 1, step)
            promised, still = _progress(gradient, step, at)
            length, halvings = 1.0, 0
        else:
            length *= 0.5
            halvings += 1
            if halvings == _MOST_HALVINGS:
                break
    return value


def _spread_of_curve(distances, weights, starts, widths, at, curvature):
    """Write Σ wᵢ·sᵢ·(1 − sᵢ)·xᵢxᵢᵀ to ``curvature``, of the features xᵢ of points and their posteriors sᵢ.

    Points and parameters are those of `fit_curve`.
    """
    size = at.shape[0]
    positive = np.zeros(distances.shape[0], dtype=np.bool_)
    gradient, penalty = np.empty(size), np.zeros((size, size))
    _curve_moments(distances, positive, weights, starts, widths, penalty, at, gradient, curvature)


fit_curve = Routine(_fit_curve, real(reals, flags, reals, integers, reals, tables, reals, tables))
spread_of_curve = Routine(
    _spread_of_curve, types.void(reals, reals, integers, reals, reals, tables)
)
fit_offsets = Routine(_fit_offsets, real(tables, codes, reals, real, real, reals, tables))
