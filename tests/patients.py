"""Generated tables of all kinds of columns, whose labels and prevalences are known."""

import numpy as np
import pandas as pd

WORDS = np.array(
    [
        "fine",
        "cough",
        "night",
        "fever",
        "rest",
        "slept",
        "well",
        "pain",
        "ache",
        "tired",
        "warm",
        "cold",
    ]
)


def patients(rows, share, seed, texts=False):
    """Patients, of whom a share is ill: numbers, booleans, categories, dates and keys, some with gaps."""
    rng = np.random.default_rng(seed)
    ill = rng.random(rows) < share
    gaps = rng.random((rows, 2)) < 0.05
    days = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 300, rows) + 20 * ill, "D")
    towns = pd.Series(rng.choice(["Orléans", "Pisa", "Rome"], rows, p=[0.2, 0.4, 0.4]))
    frame = pd.DataFrame(
        {
            "age": rng.normal(50 + 8 * ill, 12).round(1),
            "visits": rng.poisson(1 + 1.2 * ill),
            "pressure": np.where(gaps[:, 0], np.nan, rng.normal(120 + 6 * ill, 15).round(1)),
            "smoker": rng.random(rows) < 0.2 + 0.25 * ill,
            "town": towns.mask(gaps[:, 1]),
            "admitted": days.strftime("%d.%m.%Y"),
            "patient": [f"p{seed}-{row}" for row in range(rows)],
        }
    )
    if texts:
        frame["note"] = [" ".join(rng.choice(WORDS[3 * i : 9 + 3 * i], 4)) for i in ill.astype(int)]
    return frame.assign(outcome=np.where(ill, "ill", "well"))
