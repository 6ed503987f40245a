"""Features become finite numbers on comparable scales here.

A preparation is fitted to the training part. What it has learned is a few arrays, so that it can be saved and loaded
like a learner, and transforms any part of a file as it would transform the whole.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import scipy.sparse
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfTransformer, TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import MaxAbsScaler, OneHotEncoder, StandardScaler, normalize
from sklearn.utils.sparsefuncs import inplace_column_scale

from quapy_nemsis.learners.state import Arrays, Saved, check_parameters, prefixed
from quapy_nemsis.tables.columns import MOST_CATEGORIES, TEXT_WIDTH, UNUSED, USED, listed, roles
from quapy_nemsis.tables.formats import Fault

if TYPE_CHECKING:
    from typing_extensions import Self

DENSE_LIMIT = 10**8
#: Share of nonzero entries up to which whole numbers in a sparse matrix are taken for term counts.
MOST_DENSE_TEXT = 0.05
#: Parts of a date, and the one that those without a time of day lack.
DATE_PARTS, TIME = ("year", "month", "day", "hour", "total_seconds"), "hour"
_NUMBERS = (np.float64, np.float32)


def are_term_counts(features: Any) -> bool:
    """Tell whether features are counts of terms in texts, which are to be weighted by tf-idf.

    They are if they come as a sparse matrix of whole numbers, none negative and some above 1, of which at most one
    entry in twenty is not 0. So 0/1 indicators are no counts, nor are other numbers in a sparse format.
    """
    if not scipy.sparse.issparse(features) or not features.nnz:
        return False
    if features.nnz > MOST_DENSE_TEXT * features.shape[0] * features.shape[1]:
        return False
    values = features.data
    return bool(values.min() >= 0 and values.max() > 1 and (values == np.floor(values)).all())


def preparer(
    features: Any, counts: bool = False, taken_as: dict[str, str] | None = None
) -> Preparation:
    """Return a transformer, not fitted, that makes finite numbers of features such as these.

    Call it with the training part and fit it there.

    Parameters
    ----------
    features : array, sparse matrix or DataFrame of typed columns
        The training part.
    counts : bool
        Whether the features are term counts (see `are_term_counts`), which are weighted by tf-idf.
    taken_as : dict of str, optional
        The roles of the columns of a DataFrame, as `roles` returns them for all rows; those of the training part if
        not given.
    """
    if counts:
        return TermWeights()
    if isinstance(features, pd.DataFrame):
        taken_as = roles(features) if taken_as is None else taken_as
        if not set(USED) & set(taken_as.values()):
            raise Fault(f"no column can be used, of {listed(list(features.columns))}")
        return TablePreparation(taken_as)
    if scipy.sparse.issparse(features) and features.shape[0] * features.shape[1] > DENSE_LIMIT:
        return SparseScaling()
    return DenseScaling()


class Preparation:
    """A transformer that makes finite numbers of features; subclasses say how."""

    def fit(self, features: Any, y: Any = None) -> Self:
        """Learn what is to be done with features such as these."""
        self.fit_transform(features)
        return self

    def fit_transform(self, features: Any, y: Any = None) -> Any:
        """Learn what is to be done with features such as these, and do it."""
        raise TypeError(f"{type(self).__name__} is abstract")

    def transform(self, features: Any) -> Any:
        """Return features as numbers: an array in C order, or CSR."""
        raise TypeError(f"{type(self).__name__} is abstract")

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Everything that was learned, as named arrays."""
        raise TypeError(f"{type(self).__name__} is abstract")

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Self:
        """Inverse of `to_arrays`; arrays of the wrong name, type or shape raise a ValueError."""
        raise TypeError(f"{cls.__name__} is abstract")

    def to_saved(self) -> Saved:
        """What a file holds of the preparation, which must be fitted."""
        return Saved({}, {}, self.to_arrays())

    @classmethod
    def from_saved(cls, parameters: dict[str, Any], parts: dict[str, Any], arrays: Arrays) -> Self:
        """Inverse of `to_saved`; parts that do not fit together raise a ValueError."""
        check_parameters(parameters, (), cls.__name__)
        return cls.from_arrays(arrays)

    @property
    def width(self) -> int:
        """Number of features that are made."""
        raise TypeError(f"{type(self).__name__} is abstract")


# Arrays


class DenseScaling(Preparation):
    """Numbers with mean 0 and standard deviation 1; gaps are the median."""

    median: np.ndarray
    mean: np.ndarray
    scale: np.ndarray

    def fit_transform(self, features: Any, y: Any = None) -> np.ndarray:
        """Learn medians, means and scales, and apply them."""
        X = as_dense(features)
        gaps = SimpleImputer(strategy="median", keep_empty_features=True).fit(X)
        self.median = gaps.statistics_.astype(X.dtype)
        scaler = StandardScaler().fit(self._filled(X))
        self.mean, self.scale = scaler.mean_, scaler.scale_
        return self.transform(X)

    def _filled(self, X: np.ndarray) -> np.ndarray:
        return np.where(np.isnan(X), self.median.astype(X.dtype), X)

    def transform(self, features: Any) -> np.ndarray:
        """Fill in gaps and scale."""
        X = self._filled(as_dense(features))
        X -= self.mean.astype(X.dtype)
        X /= self.scale.astype(X.dtype)
        return X

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Medians, means and scales."""
        return {"median": self.median, "mean": self.mean, "scale": self.scale}

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Self:
        """Inverse of `to_arrays`."""
        found = cls()
        found.median = _finite(arrays.take("median", None, types=_NUMBERS))
        found.mean, found.scale = _scaling(arrays, len(found.median))
        return found

    @property
    def width(self) -> int:
        """Number of features, which is that of the columns."""
        return len(self.mean)


class SparseScaling(Preparation):
    """Sparse numbers divided by the largest of their column; gaps are 0."""

    scale: np.ndarray

    def fit_transform(self, features: Any, y: Any = None) -> Any:
        """Learn the largest absolute values, and apply them."""
        self.scale = MaxAbsScaler().fit(without_gaps(features)).scale_
        return self.transform(features)

    def transform(self, features: Any) -> Any:
        """Fill in gaps and scale."""
        X = without_gaps(features)
        inplace_column_scale(X, 1.0 / self.scale)
        return X

    def to_arrays(self) -> dict[str, np.ndarray]:
        """The largest absolute values."""
        return {"scale": self.scale}

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Self:
        """Inverse of `to_arrays`."""
        found = cls()
        found.scale = _positive(arrays.take("scale", None, types=_NUMBERS))
        return found

    @property
    def width(self) -> int:
        """Number of features, which is that of the columns."""
        return len(self.scale)


class TermWeights(Preparation):
    """Counts of terms, weighted by their inverse document frequency; each row has length 1."""

    idf: np.ndarray

    def fit_transform(self, features: Any, y: Any = None) -> Any:
        """Learn the inverse document frequencies, and apply them."""
        self.idf = TfidfTransformer().fit(features).idf_
        return self.transform(features)

    def transform(self, features: Any) -> Any:
        """Weight the counts."""
        X = scipy.sparse.csr_matrix(features, copy=True)
        X = X if X.dtype in _NUMBERS else X.astype(np.float64)
        inplace_column_scale(X, self.idf)
        return normalize(X, norm="l2", copy=False)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """The inverse document frequencies."""
        return {"idf": self.idf}

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Self:
        """Inverse of `to_arrays`."""
        found = cls()
        found.idf = _positive(arrays.take("idf", None, types=_NUMBERS))
        return found

    @property
    def width(self) -> int:
        """Number of features, which is that of the terms."""
        return len(self.idf)


# Tables


class TablePreparation(Preparation):
    """Numbers of the columns of a table, one way for each role.

    Numbers and booleans are scaled; gaps are the median, and marked by another feature. Dates are year, month, day,
    hour (unless all are midnight) and seconds since 1970, which are scaled like numbers. A category is one of up to 50
    features; the rarest ones share one. Texts are tf-idf weights of their letter n-grams, reduced to 100 components.

    Parameters
    ----------
    taken_as : dict of str
        The roles of the columns, as `quapy_nemsis.tables.columns.roles` returns them.
    """

    numbers: Numbers | None
    categories: list[Category]
    dates: list[Date]
    texts: list[Text]

    def __init__(self, taken_as: dict[str, str]):
        self.taken_as = dict(taken_as)

    def named(self, *kinds: str) -> list[str]:
        """Return the columns that are taken as one of these kinds."""
        return [name for name, kind in self.taken_as.items() if kind in kinds]

    @property
    def used(self) -> dict[str, str]:
        """The columns that features are made of, and what they are taken as."""
        return {name: kind for name, kind in self.taken_as.items() if kind in USED}

    def fit_transform(self, features: pd.DataFrame, y: Any = None) -> np.ndarray:
        """Learn scales, categories and vocabularies, and apply them."""
        self.numbers = None
        blocks: list[np.ndarray] = []
        if names := self.named("number", "boolean"):
            values = features[names].astype("float64").to_numpy()
            self.numbers = Numbers.of(values)
            blocks.append(self.numbers.transform(values))
        self.categories = [Category.of(name, features[name]) for name in self.named("category")]
        # Of a column without values, nothing can be learned.
        full = [name for name in self.named("date") if features[name].notna().any()]
        self.dates = [Date.of(name, features[name]) for name in full]
        blocks += [piece.transform(features[piece.name]) for piece in self.categories + self.dates]
        self.texts = []
        width = max(1, min(TEXT_WIDTH, len(features) - 1))
        for name in self.named("text"):
            if features[name].notna().any():
                piece, block = Text.of(name, features[name], width)
                self.texts.append(piece)
                blocks.append(block)
        return _joined(blocks, len(features))

    def transform(self, features: pd.DataFrame) -> np.ndarray:
        """Return the columns as numbers."""
        blocks: list[np.ndarray] = []
        if self.numbers is not None:
            names = self.named("number", "boolean")
            blocks.append(self.numbers.transform(features[names].astype("float64").to_numpy()))
        pieces: list[Category | Date | Text] = [*self.categories, *self.dates, *self.texts]
        blocks += [piece.transform(features[piece.name]) for piece in pieces]
        return _joined(blocks, len(features))

    @property
    def width(self) -> int:
        """Number of features that are made."""
        pieces: list[Any] = [*self.categories, *self.dates, *self.texts]
        pieces += [] if self.numbers is None else [self.numbers]
        return sum(piece.width for piece in pieces)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Roles, scales, categories and vocabularies."""
        arrays = {
            **prefixed("columns", packed(list(self.taken_as))),
            **prefixed("roles", packed(list(self.taken_as.values()))),
        }
        if self.numbers is not None:
            arrays |= prefixed("numbers", self.numbers.to_arrays())
        for kind in ("categories", "dates", "texts"):
            pieces = getattr(self, kind)
            arrays |= prefixed(kind, packed([piece.name for piece in pieces]))
            for place, piece in enumerate(pieces):
                arrays |= prefixed(f"{kind}.{place}", piece.to_arrays())
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Self:
        """Inverse of `to_arrays`."""
        names, kinds = unpacked(arrays.part("columns")), unpacked(arrays.part("roles"))
        if len(set(names)) != len(names) or len(names) != len(kinds):
            raise ValueError("its columns are not distinct, or differ in number from their roles")
        if not set(kinds) <= {*USED, *UNUSED}:
            raise ValueError(f"a role of its columns is unknown: {sorted(set(kinds))}")
        found = cls(dict(zip(names, kinds, strict=True)))
        part = arrays.part("numbers")
        found.numbers = Numbers.from_arrays(part) if part.arrays else None
        part.finish()
        wanted = len(found.named("number", "boolean"))
        if (0 if found.numbers is None else len(found.numbers.median)) != wanted:
            raise ValueError("its numbers do not fit its columns")
        pieces: tuple[tuple[str, str, type[Any]], ...] = (
            ("categories", "category", Category),
            ("dates", "date", Date),
            ("texts", "text", Text),
        )
        for kind, taken_as, piece in pieces:
            part = arrays.part(kind)
            columns = unpacked(part, finish=False)
            if len(set(columns)) != len(columns) or not set(columns) <= set(found.named(taken_as)):
                raise ValueError(f"its {kind} do not fit its columns")
            made = []
            for place, name in enumerate(columns):
                inner = part.part(str(place))
                made.append(piece.from_arrays(name, inner))
                inner.finish()
            part.finish()
            setattr(found, kind, made)
        if len(found.categories) != len(found.named("category")):
            raise ValueError("its categories do not fit its columns")
        if not found.width > 0:
            raise ValueError("it makes no features")
        return found


class Numbers:
    """Columns of numbers, scaled; gaps are the median, and marked where training had some."""

    median: np.ndarray
    #: Places of the columns whose gaps are marked.
    marked: np.ndarray
    mean: np.ndarray
    scale: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray) -> Self:
        """Learn from the values of training rows."""
        found = cls()
        gaps = SimpleImputer(strategy="median", add_indicator=True, keep_empty_features=True)
        filled = gaps.fit_transform(values)
        found.median = gaps.statistics_
        found.marked = gaps.indicator_.features_.astype(np.int64)
        scaler = StandardScaler().fit(filled)
        found.mean, found.scale = scaler.mean_, scaler.scale_
        return found

    def transform(self, values: np.ndarray) -> np.ndarray:
        """Fill in gaps, mark them, and scale all."""
        gaps = np.isnan(values)
        X = np.hstack([np.where(gaps, self.median, values), gaps[:, self.marked]])
        X -= self.mean
        X /= self.scale
        return X

    @property
    def width(self) -> int:
        """Number of features."""
        return len(self.mean)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Medians, marks, means and scales."""
        names = ("median", "marked", "mean", "scale")
        return {name: getattr(self, name) for name in names}

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Self:
        """Inverse of `to_arrays`."""
        found = cls()
        found.median = _finite(arrays.take("median", None))
        found.marked = arrays.take("marked", None, types=(np.int64,))
        inside = (found.marked >= 0) & (found.marked < len(found.median))
        if not inside.all() or len(np.unique(found.marked)) != len(found.marked):
            raise ValueError("the marks of its gaps are not those of its columns")
        found.mean, found.scale = _scaling(arrays, len(found.median) + len(found.marked))
        return found


class Category:
    """A column of categories: a feature for each frequent one, and one that the rare ones share, if there are any."""

    name: str
    #: All categories of the training rows, sorted.
    known: list[str]
    #: The feature of each; a gap's is last, or −1 if training rows had none.
    places: np.ndarray
    #: The feature of those that training rows had not, which is that of rare ones, or −1.
    other: int

    @classmethod
    def of(cls, name: str, column: pd.Series) -> Self:
        """Learn from the values of training rows."""
        found = cls()
        found.name = name
        codes = OneHotEncoder(
            handle_unknown="infrequent_if_exist", max_categories=MOST_CATEGORIES
        ).fit(as_texts(column).to_frame())
        values = codes.categories_[0].tolist()
        rare = codes.infrequent_categories_[0]
        is_rare = np.zeros(len(values), dtype=bool)
        if rare is not None:
            shared = {value for value in rare.tolist() if isinstance(value, str)}
            gap_is_rare = len(shared) < len(rare)
            is_rare[:] = [v in shared if isinstance(v, str) else gap_is_rare for v in values]
        frequent = int((~is_rare).sum())
        found.other = frequent if is_rare.any() else -1
        places = np.where(is_rare, frequent, np.cumsum(~is_rare) - 1)
        found.known = [value for value in values if isinstance(value, str)]
        if len(found.known) == len(values):  # a gap is like a category that was not seen
            places = np.append(places, found.other)
        found.places = places.astype(np.int64)
        return found

    def codes(self, column: pd.Series) -> np.ndarray:
        """Place of each value among the known categories; a gap is after them, what is not known −1."""
        texts = as_texts(column)
        codes = pd.Index(self.known, dtype=object).get_indexer(texts)
        return np.where(texts.isna(), len(self.known), codes)

    def transform(self, column: pd.Series) -> np.ndarray:
        """Return a column of 0 and 1 for each feature."""
        codes = self.codes(column)
        at = np.where(codes < 0, self.other, self.places[codes])
        X = np.zeros((len(at), self.width))
        rows = np.flatnonzero(at >= 0)
        X[rows, at[rows]] = 1.0
        return X

    @property
    def width(self) -> int:
        """Number of features."""
        return int(self.places.max()) + 1

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Categories and their features."""
        return {
            **prefixed("known", packed(self.known)),
            "places": self.places,
            "other": np.array(self.other),
        }

    @classmethod
    def from_arrays(cls, name: str, arrays: Arrays) -> Self:
        """Inverse of `to_arrays`."""
        found = cls()
        found.name = name
        found.known = unpacked(arrays.part("known"))
        found.places = arrays.take("places", len(found.known) + 1, types=(np.int64,))
        found.other = int(arrays.take("other", types=(np.int64,)))
        used = np.unique(found.places[found.places >= 0])
        in_order = np.array_equal(used, np.arange(len(used))) and len(used)
        if not in_order or not -1 <= found.other < len(used) or found.places.min() < -1:
            raise ValueError(f"the categories of {name!r} have no features of their own")
        if len(set(found.known)) != len(found.known):
            raise ValueError(f"the categories of {name!r} are not distinct")
        return found


class Date:
    """A column of dates: their parts, as numbers."""

    name: str
    parts: tuple[str, ...]
    numbers: Numbers

    @classmethod
    def of(cls, name: str, column: pd.Series) -> Self:
        """Learn from the values of training rows."""
        found = cls()
        found.name = name
        dates = column.dropna()
        midnight = bool((dates.dt.normalize() == dates).all())
        found.parts = tuple(part for part in DATE_PARTS if part != TIME or not midnight)
        found.numbers = Numbers.of(found.values(column))
        return found

    def values(self, column: pd.Series) -> np.ndarray:
        """Return the parts of dates, as precise as float32."""
        epoch = pd.Timestamp(0, tz=column.dt.tz)
        seconds = (column - epoch) / pd.Timedelta("1s")
        values = [seconds if p == "total_seconds" else getattr(column.dt, p) for p in self.parts]
        return np.stack([v.to_numpy(np.float32) for v in values]).astype(np.float64).T

    def transform(self, column: pd.Series) -> np.ndarray:
        """Return the parts, scaled like numbers."""
        return self.numbers.transform(self.values(column))

    @property
    def width(self) -> int:
        """Number of features."""
        return self.numbers.width

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Parts and scales."""
        return {"timed": np.array(TIME in self.parts), **self.numbers.to_arrays()}

    @classmethod
    def from_arrays(cls, name: str, arrays: Arrays) -> Self:
        """Inverse of `to_arrays`."""
        found = cls()
        found.name = name
        timed = bool(arrays.take("timed", types=(np.bool_,)))
        found.parts = tuple(part for part in DATE_PARTS if part != TIME or timed)
        found.numbers = Numbers.from_arrays(arrays)
        if len(found.numbers.median) != len(found.parts):
            raise ValueError(f"the dates of {name!r} have other parts")
        return found


class Text:
    """A column of texts: tf-idf weights of letter n-grams within words, reduced by a truncated SVD."""

    name: str
    terms: list[str]
    idf: np.ndarray
    #: Directions of the components; if there is none, the weights of the first terms are taken.
    components: np.ndarray
    scale: np.ndarray

    @classmethod
    def of(cls, name: str, column: pd.Series, width: int) -> tuple[Self, np.ndarray]:
        """Learn from the values of training rows; return their features, too."""
        found = cls()
        found.name = name
        vectorizer = _letters()
        weights = vectorizer.fit_transform(as_texts(column).fillna("")).astype(np.float32)
        found.terms = sorted(vectorizer.vocabulary_, key=vectorizer.vocabulary_.__getitem__)
        found.idf = vectorizer.idf_
        found._vectorizer = vectorizer
        if min(weights.shape) > width:
            svd = TruncatedSVD(n_components=width, random_state=0)
            X = svd.fit_transform(weights)
            found.components = svd.components_.astype(np.float32)
        else:
            X = weights[:, :width].toarray()
            found.components = np.zeros((0, len(found.terms)), dtype=np.float32)
        # All components together have variance 1.
        spread = np.sqrt(X.var(axis=0).sum())
        found.scale = np.array(spread if spread >= 10 * np.finfo(X.dtype).eps else 1.0, X.dtype)
        found.width = X.shape[1]
        return found, X / found.scale

    #: Number of features.
    width: int
    _vectorizer: TfidfVectorizer

    def transform(self, column: pd.Series) -> np.ndarray:
        """Return the components of texts."""
        weights = self._vectorizer.transform(as_texts(column).fillna("")).astype(np.float32)
        if len(self.components):
            X = weights @ self.components.T
        else:
            X = weights[:, : self.width].toarray()
        return X / self.scale

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Vocabulary, weights and components."""
        return {
            **prefixed("terms", packed(self.terms)),
            **{"idf": self.idf, "components": self.components, "scale": self.scale},
            "width": np.array(self.width),
        }

    @classmethod
    def from_arrays(cls, name: str, arrays: Arrays) -> Self:
        """Inverse of `to_arrays`."""
        found = cls()
        found.name = name
        found.terms = unpacked(arrays.part("terms"))
        found.idf = _positive(arrays.take("idf", len(found.terms)))
        single = (np.float32,)
        found.components = _finite(arrays.take("components", None, len(found.terms), types=single))
        found.scale = _positive(arrays.take("scale", types=single))
        found.width = arrays.count("width")
        most = len(found.components) or len(found.terms)
        if not 0 < found.width <= most or (len(found.components) and found.width != most):
            raise ValueError(f"the texts of {name!r} have {found.width} components")
        if len(set(found.terms)) != len(found.terms):
            raise ValueError(f"the terms of {name!r} are not distinct")
        found._vectorizer = _letters({term: place for place, term in enumerate(found.terms)})
        found._vectorizer.idf_ = found.idf
        return found


def _letters(vocabulary: dict[str, int] | None = None) -> TfidfVectorizer:
    return TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 4), vocabulary=vocabulary)


# Helpers


def as_texts(column: pd.Series) -> pd.Series:
    """Return a column as Python strings, missing values as nan."""
    if column.dtype == object and pd.api.types.infer_dtype(column, skipna=True) == "string":
        return column.where(column.notna(), np.nan)
    return column.astype(str).astype(object).where(column.notna(), np.nan)


def as_dense(X: Any) -> np.ndarray:
    """Return the matrix as an array in C order."""
    return np.ascontiguousarray(X.toarray() if scipy.sparse.issparse(X) else X)


def without_gaps(X: Any) -> Any:
    """Return the matrix as CSR, with zeros for missing values."""
    X = X.tocsr(copy=True)
    X.data = np.nan_to_num(X.data)
    return X


def packed(texts: list[str]) -> dict[str, np.ndarray]:
    """Return texts of any length as two arrays: their bytes, and where each ends."""
    encoded = [one.encode("utf-8", "surrogatepass") for one in texts]
    ends = np.cumsum([len(one) for one in encoded], dtype=np.int64)
    return {"bytes": np.frombuffer(b"".join(encoded), dtype=np.uint8), "ends": ends}


def unpacked(arrays: Arrays, finish: bool = True) -> list[str]:
    """Inverse of `packed`; arrays that hold no texts raise a ValueError."""
    content = arrays.take("bytes", None, types=(np.uint8,)).tobytes()
    ends = arrays.take("ends", None, types=(np.int64,)).tolist()
    if finish:
        arrays.finish()
    edges = [0, *ends]
    if any(a > b for a, b in pairwise(edges)) or edges[-1] != len(content):
        raise ValueError("its texts do not end where they should")
    return [content[a:b].decode("utf-8", "surrogatepass") for a, b in pairwise(edges)]


def _joined(blocks: list[np.ndarray], n_rows: int) -> np.ndarray:
    """Return blocks of features side by side."""
    return np.hstack([np.zeros((n_rows, 0)), *blocks])


def _finite(array: np.ndarray) -> np.ndarray:
    if not np.isfinite(array).all():
        raise ValueError("its preparation holds numbers that are not finite")
    return array


def _positive(array: np.ndarray) -> np.ndarray:
    if not (_finite(array) > 0).all():
        raise ValueError("its preparation holds scales that are not positive")
    return array


def _scaling(arrays: Arrays, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Take out means and scales."""
    return _finite(arrays.take("mean", width)), _positive(arrays.take("scale", width))
