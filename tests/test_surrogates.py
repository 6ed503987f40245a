import itertools
import math

import numpy as np
import pytest

from quapy_nemsis._jit import numba
from quapy_nemsis.surrogates import SURROGATES, reward, slope, surrogate_code

HINGE, LOGISTIC = surrogate_code("hinge"), surrogate_code("logistic")

MARGINS = np.linspace(-40.0, 40.0, 161)


def test_known_values():
    assert reward(HINGE, 2.5) == 1.0
    assert reward(HINGE, -3.0) == -3.0
    assert reward(LOGISTIC, 0.0) == pytest.approx(1.0 - math.log(2.0))
    for m in np.linspace(-5, 5, 21):
        assert reward(LOGISTIC, m) == pytest.approx(1.0 - math.log(1.0 + math.exp(-m)), abs=1e-14)


@pytest.mark.parametrize("kind", [HINGE, LOGISTIC])
def test_slope_is_the_derivative_and_the_reward_is_concave(kind):
    h = 1e-5
    for m in MARGINS:
        if kind == HINGE and abs(m - 1.0) < 0.1:
            continue  # the kink
        numeric = (reward(kind, m + h) - reward(kind, m - h)) / (2 * h)
        assert slope(kind, m) == pytest.approx(numeric, abs=1e-6)
    slopes = [slope(kind, m) for m in MARGINS]
    assert all(a >= b >= 0.0 for a, b in itertools.pairwise(slopes))


def test_extreme_margins_stay_finite():
    assert reward(LOGISTIC, -1e5) == pytest.approx(1.0 - 1e5)
    assert reward(LOGISTIC, 1e5) == 1.0
    assert slope(LOGISTIC, -1e5) == 1.0
    assert slope(LOGISTIC, 1e5) == 0.0


@pytest.mark.parametrize("name", ["exp", 1, None])
def test_unknown_reward(name):
    with pytest.raises(ValueError, match=f"got {name!r}"):
        surrogate_code(name)


def test_every_surrogate_is_dispatched_and_nothing_else():
    for code, surrogate in enumerate(SURROGATES.values()):
        assert reward(code, 0.3) == surrogate.reward(0.3)
        assert slope(code, 0.3) == surrogate.slope(0.3)
    assert math.isnan(reward(len(SURROGATES), 0.3))
    assert math.isnan(numba.njit(lambda kind, m: slope(kind, m))(len(SURROGATES), 0.3))
