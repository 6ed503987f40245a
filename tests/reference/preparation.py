"""The preparation of columns by objects of scikit-learn and skrub, for comparison with `TablePreparation`."""

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from skrub import DatetimeEncoder, StringEncoder


def pipeline(frame, taken_as):
    """A transformer, not fitted, of the training part of typed columns with these roles."""

    def named(*kinds):
        return [name for name in taken_as if taken_as[name] in kinds]

    floats = FunctionTransformer(lambda values: values.astype("float64"))
    texts = FunctionTransformer(
        lambda part: part.astype(str).astype(object).where(part.notna(), np.nan)
    )
    median = SimpleImputer(strategy="median", add_indicator=True, keep_empty_features=True)
    scaled = make_pipeline(floats, median, StandardScaler())
    codes = OneHotEncoder(
        handle_unknown="infrequent_if_exist", max_categories=50, sparse_output=False
    )
    steps = [
        ("number", scaled, named("number", "boolean")),
        ("category", make_pipeline(texts, codes), named("category")),
    ]
    encoders = {
        "date": make_pipeline(DatetimeEncoder(), scaled),
        "text": StringEncoder(max(1, min(100, len(frame) - 1)), random_state=0),
    }
    for kind, encoder in encoders.items():
        full = [name for name in named(kind) if frame[name].notna().any()]
        steps += [(f"{kind} {place}", encoder, name) for place, name in enumerate(full)]
    return ColumnTransformer(steps, sparse_threshold=0.0)
