"""Trackers of prevalences, slowly and plainly: all estimates are remembered, and derivatives are differences."""

import numpy as np
from scipy.optimize import minimize


def projected(v, least=0.0):
    """Nearest point of the simplex whose entries are at least so large: v minus a threshold, found by bisection."""
    low, high = v.min() - 2.0, v.max() + 2.0
    for _ in range(200):
        middle = 0.5 * (low + high)
        if np.maximum(v - middle, least).sum() > 1.0:
            low = middle
        else:
            high = middle
    return np.maximum(v - low, least)


def confusion(posteriors, labels, n_classes):
    """C[i, j]: mean posterior of class i over rows of class j."""
    C = np.zeros((n_classes, n_classes))
    for j in range(n_classes):
        C[:, j] = np.mean(
            [row for row, y in zip(posteriors, labels, strict=True) if y == j], axis=0
        )
    return C


def bbse(C, chunk):
    return np.linalg.solve(C, np.mean(chunk, axis=0))


def follow_the_history(C, chunks):
    """Wu et al. 2021: the mean of all estimates."""
    estimates, found = [], []
    for chunk in chunks:
        estimates.append(bbse(C, chunk))
        found.append(projected(np.mean(estimates, axis=0)))
    return found


def expected_error(p, q, posteriors, labels, shares):
    """Expected error, at the prevalences q, of answers drawn from posteriors that are re-weighted to p."""
    right = np.zeros(len(p))
    for row, y in zip(posteriors, labels, strict=True):
        moved = row * p / shares
        right[y] += moved[y] / moved.sum() / np.sum(labels == y)
    return np.dot(q, 1.0 - right)


def slope(function, at, width=1e-6):
    """Gradient by central differences."""
    found = np.zeros(at.shape)
    for place in np.ndindex(at.shape):
        up, down = at.copy(), at.copy()
        up[place] += width
        down[place] -= width
        found[place] = (function(up) - function(down)) / (2.0 * width)
    return found


def reweighting_descent(C, chunks, posteriors, labels, shares, step, least):
    """Wu et al. 2021: online gradient descent on the prevalences that posteriors are re-weighted to."""
    p, found = shares.copy(), []
    for chunk in chunks:
        q = bbse(C, chunk)
        gradient = slope(lambda at, q=q: expected_error(at, q, posteriors, labels, shares), p)
        p = projected(p - step * gradient, least)
        found.append(p)
    return found


def layer_inputs(posteriors, shares, unit):
    """Centred log-likelihoods in units, and a 1."""
    logs = np.log(posteriors / shares)
    logs = logs - logs.mean(axis=1, keepdims=True)
    return np.column_stack([logs / unit, np.ones(len(logs))])


def answers(theta, inputs):
    scores = np.exp(inputs @ theta.T)
    return scores / scores.sum(axis=1, keepdims=True)


def class_risk(theta, q, inputs, labels):
    """Bai et al. 2022: the sum over classes of prevalence times mean cross-entropy of labelled rows."""
    risk = 0.0
    for k, share in enumerate(q):
        own = inputs[labels == k]
        risk += share * np.mean([-np.log(row[k]) for row in answers(theta, own)])
    return risk


def unbiased_descent(C, chunks, inputs, labels, start, step, radius):
    """Bai et al. 2022: parameters and risks, before each step, of online gradient descent."""
    theta, parameters, risks = start.copy(), [], []
    for chunk in chunks:
        q = bbse(C, chunk)
        risks.append(class_risk(theta, q, inputs, labels))
        theta = theta - step * slope(lambda at, q=q: class_risk(at, q, inputs, labels), theta)
        norm = np.sqrt((theta**2).sum())
        if norm > radius:
            theta = theta * radius / norm
        parameters.append(theta)
    return parameters, risks


def ensemble(C, chunks, inputs, labels, start, steps, rate, radius):
    """Bai et al. 2022, ATLAS: the mean of several descents, weighed by exp(−rate·sum of risks)."""
    learners = [unbiased_descent(C, chunks, inputs, labels, start, step, radius) for step in steps]
    found = []
    for t in range(len(chunks)):
        weights = np.array([np.exp(-rate * sum(risks[: t + 1])) for _, risks in learners])
        weights /= weights.sum()
        found.append(sum(w * thetas[t] for w, (thetas, _) in zip(weights, learners, strict=True)))
    return found


def lifetime(i):
    """Hazan and Seshadhri 2009: 2^(k+2) + 1 for i = r·2^k with r odd."""
    k = 0
    while i % 2 == 0:
        i, k = i // 2, k + 1
    return 2 ** (k + 2) + 1


def leading_history(C, chunks, rate, prune):
    """Baby et al. 2023: experts that are means since they began, with weights by their squared errors."""
    estimates, weights, found = [], {}, []
    for t, chunk in enumerate(chunks, 1):
        q = bbse(C, chunk)
        for i in weights:
            prediction = np.mean(estimates[i - 1 :], axis=0)
            weights[i] *= np.exp(-rate * np.sum((prediction - q) ** 2))
        total = sum(weights.values())
        weights = {i: w / total * (1.0 - 1.0 / t) for i, w in weights.items()}
        weights[t] = 1.0 / t
        estimates.append(q)
        if prune:
            weights = {i: w for i, w in weights.items() if t <= i + lifetime(i)}
            total = sum(weights.values())
            weights = {i: w / total for i, w in weights.items()}
        mean = sum(w * np.mean(estimates[i - 1 :], axis=0) for i, w in weights.items())
        found.append(projected(mean))
    return found


def forgetting_maximum(chunks, shares, forget, prior, effective_size):
    """Prevalences that maximise the likelihood of all rows, weighed by their age, with a prior."""
    ages = range(len(chunks) - 1, -1, -1)
    total = sum(forget**age * len(chunk) for age, chunk in zip(ages, chunks, strict=True))
    pseudo = prior * (1.0 + total / effective_size)

    def loss(logits):
        p = np.exp(logits - logits.max())
        p /= p.sum()
        value = -pseudo * np.log(p).sum()
        for age, chunk in zip(ages, chunks, strict=True):
            value -= forget**age * np.log((chunk / shares) @ p).sum()
        return value

    logits = minimize(loss, np.log(shares), method="BFGS", options={"gtol": 1e-7}).x
    p = np.exp(logits - logits.max())
    return p / p.sum()
