"""Files that hold quantifiers, the preparation of tables, or both; learners alone are in test_persistence.py."""

import json
import subprocess
import sys

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

import quapy_nemsis
from quapy_nemsis import (
    FourierFeatures,
    NEMSISClassifier,
    NystromFeatures,
    Quantifier,
    SCANClassifier,
    load,
    save,
)
from quapy_nemsis.persistence import QUANTIFIERS
from tests.conftest import ROOT, make_points
from tests.forging import forged, opened, put

X, Y = make_points(n=240, share=0.4)


def learner():
    """A learner that is trained in a few steps."""
    return NEMSISClassifier("ba", reward="logistic", eta0=0.1, radius=10.0, n_passes=2)


def counting(name):
    """A quantifier that counts, trained in a few steps."""
    parameters = {"eta0": 0.1, "radius": 10.0, "n_passes": 2, "buffer_size": 30, "tol": 1e-2}
    found = getattr(quapy_nemsis, name)()
    return found.set_params(**{k: v for k, v in parameters.items() if k in found.get_params()})


@pytest.mark.parametrize("name", [name for name in QUANTIFIERS if name != "Quantifier"])
@pytest.mark.filterwarnings("ignore")
def test_quantifiers_that_count_come_back_as_they_were(name, tmp_path):
    path, quantifier = tmp_path / "quantifier.npz", counting(name)
    save(quantifier, path)
    assert repr(load(path)) == repr(quantifier)
    if name not in ("CAN", "NEMSIS"):
        return  # as these, and slow to compile; fitted trees are in test_trees.py
    quantifier.fit(X, np.where(Y, "yes", "no"))
    save(quantifier, path)
    again = load(path)
    assert repr(again) == repr(quantifier)
    assert type(again.classifier_) is type(quantifier.classifier_)
    np.testing.assert_array_equal(again.predict(X), quantifier.predict(X))
    assert again.classes_.tolist() == ["no", "yes"]
    if hasattr(quantifier, "partial_fit"):
        for one in (quantifier, again):
            one.partial_fit(X, np.where(Y, "yes", "no"))
        np.testing.assert_array_equal(again.predict(X), quantifier.predict(X))


FEATURES = FourierFeatures(10, random_state=0)


@pytest.mark.parametrize(
    "quantifier",
    [
        Quantifier(learner(), features=None, n_draws=20, random_state=0),
        Quantifier(learner(), features=FEATURES, n_draws=20, random_state=1, prior=1.0),
        Quantifier(learner(), features=NystromFeatures(9, random_state=0), random_state=4),
        Quantifier(learner(), features="auto", n_draws=20, random_state=2, no_drift=0.0),
        Quantifier(
            SCANClassifier(eta0=0.1, radius=10.0, n_passes=2), features=None, random_state=3
        ),
    ],
    ids=["plain", "features", "landmarks", "auto", "scan"],
)
def test_quantifier_comes_back_as_it_was_and_goes_on(quantifier, tmp_path):
    path = tmp_path / "quantifier.npz"
    save(quantifier, path)
    assert repr(load(path)) == repr(quantifier)
    quantifier.fit(X[:200], Y[:200])
    save(quantifier, path)
    again = load(path)
    assert repr(again) == repr(quantifier)
    for one, other in (
        (quantifier.predict(X), again.predict(X)),
        (quantifier.draw(X), again.draw(X)),
    ):
        np.testing.assert_array_equal(one, other)
    for one in (quantifier, again):
        one.partial_fit(X[200:], Y[200:])
    np.testing.assert_array_equal(quantifier.draw(X), again.draw(X))


def test_scores_may_take_the_place_of_rows():
    from quapy_nemsis.quantifiers import Scores

    quantifier = Quantifier(learner(), features=FEATURES, n_draws=20, random_state=0).fit(X, Y)
    parts = Scores.joined([quantifier.scores(X[:100]), quantifier.scores(X[100:])])
    assert len(parts) == 240
    np.testing.assert_allclose(quantifier.predict(parts), quantifier.predict(X), rtol=1e-12)
    np.testing.assert_allclose(quantifier.draw(parts), quantifier.draw(X), rtol=1e-12)
    point, region = quantifier.predict_conf(parts)
    np.testing.assert_allclose(point, quantifier.predict_conf(X)[0], rtol=1e-12)
    np.testing.assert_allclose(region.I_low, quantifier.predict_conf(X)[1].I_low, rtol=1e-12)


@pytest.mark.parametrize(
    ("quantifier", "name"),
    [
        (Quantifier(LogisticRegression()), "LogisticRegression"),
        (Quantifier(learner(), features=StandardScaler()), "StandardScaler"),
    ],
)
def test_objects_of_other_packages_are_refused(quantifier, name, tmp_path):
    for fitted in (quantifier, quantifier.fit(X, Y)):
        with pytest.raises(TypeError, match=f"with a {name} cannot be saved.*skops.io.dump"):
            save(fitted, tmp_path / "quantifier.npz")
    assert not list(tmp_path.iterdir())


def test_skops_writes_what_is_refused():
    sio = pytest.importorskip("skops.io")
    quantifier = Quantifier(LogisticRegression(), n_draws=20, random_state=0).fit(X, Y)
    content = sio.dumps(quantifier)
    again = sio.loads(content, trusted=sio.get_untrusted_types(data=content))
    np.testing.assert_array_equal(again.predict(X), quantifier.predict(X))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A file with a quantifier of tables: everything that a file can hold."""
    pytest.importorskip("skrub", reason="tables need skrub")
    from quapy_nemsis import TableQuantifier
    from tests.patients import patients

    quantifier = Quantifier(learner(), features=FEATURES, n_draws=20, random_state=0)
    model = TableQuantifier("outcome", "ill", quantifier).fit(patients(90, 0.4, 0, texts=True))
    path = tmp_path_factory.mktemp("whole") / "model.qn"
    save(model, path)
    return path


@pytest.mark.parametrize(
    ("name", "wrong", "message"),
    [
        ("quantifier.fitted", put(False), "no fitted Quantifier"),
        ("quantifier.fitted", lambda a: None, "array 'fitted' is missing"),
        ("quantifier.fitted features.directions", lambda a: a[:, 1:], "do not fit its learner"),
        ("quantifier.fitted features.directions", put(np.nan, 0), "directions, bandwidth or scale"),
        ("quantifier.fitted features.scale", put(-1.0), "directions, bandwidth or scale"),
        ("quantifier.classifier.coef", lambda a: a[:, 1:], "wrong shape"),
        ("preparation.columns.ends", lambda a: a[:-1], "do not end where they should"),
        ("preparation.roles.bytes", put(65, 0), "a role of its columns is unknown"),
        ("preparation.roles.bytes", lambda a: a.astype(np.int8), "'bytes' has the wrong"),
        ("preparation.numbers.median", put(np.inf, 0), "not finite"),
        ("preparation.numbers.scale", put(0.0, 0), "scales that are not positive"),
        ("preparation.numbers.marked", put(99), "marks of its gaps"),
        ("preparation.numbers.mean", lambda a: a[1:], "'mean' has the wrong shape"),
        ("preparation.categories.0.places", put(99, 0), "no features of their own"),
        ("preparation.categories.0.places", put(-9, 0), "no features of their own"),
        ("preparation.categories.0.other", put(5), "no features of their own"),
        ("preparation.dates.0.timed", put(True), "other parts"),
        ("preparation.texts.0.components", lambda a: a[:, 1:], "'components' has the wrong shape"),
        ("preparation.texts.0.width", put(7), "components"),
        ("preparation.texts.0.idf", put(-1.0, 0), "scales that are not positive"),
        ("preparation.stranger", lambda a: np.zeros(1), "unexpected array"),
    ],
)
def test_forged_arrays_are_refused(whole, name, wrong, message, tmp_path):
    header, arrays = opened(whole)
    arrays[name] = wrong(arrays.get(name))
    if arrays[name] is None:
        del arrays[name]
    with pytest.raises(ValueError, match=rf"does not hold .*{message}"):
        forged(tmp_path / "model.npz", header, arrays)


def parameters_of(header, *path):
    for name in path:
        header = header["parts"][name]
    return header["parameters"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda h: h["parts"].pop("preparation"),
            "no fitted Quantifier and preparation|unexpected",
        ),
        (lambda h: h["parts"].update(more=h["parts"]["preparation"]), "missing"),
        (lambda h: h["parts"]["quantifier"].update({"class": "Popen"}), "contains a Popen"),
        (lambda h: h["parts"]["quantifier"]["parts"].pop("classifier"), "another kind"),
        (lambda h: parameters_of(h).update(more=1), "parameters of TableQuantifier are not"),
        (lambda h: parameters_of(h).update(target=3), "its target is no text"),
        (lambda h: parameters_of(h).update(classes=["a"]), "classes do not fit"),
        (lambda h: parameters_of(h)["facts"]["dict"].pop("rows"), "incomplete"),
        (lambda h: parameters_of(h)["facts"]["dict"].update(counts=[1]), "not valid"),
        (lambda h: parameters_of(h)["facts"]["dict"]["codes"]["dict"].update(x=9), "not valid"),
        (lambda h: parameters_of(h, "quantifier").update(prior=-1.0), "prior must be"),
        (lambda h: parameters_of(h, "quantifier").update(n_draws="x"), "n_draws must be"),
        (lambda h: parameters_of(h, "quantifier").update(val_split=5), "another kind"),
        (lambda h: parameters_of(h, "quantifier").update(fit_classifier=1), "neither True nor"),
        (lambda h: parameters_of(h, "quantifier").pop("region"), "parameters of Quantifier are"),
        (lambda h: parameters_of(h, "preparation").update(x=1), "parameters of TablePreparation"),
        (lambda h: parameters_of(h, "quantifier", "classifier").update(eta0=-1.0), "eta0 must be"),
    ],
)
def test_forged_headers_are_refused(whole, change, message, tmp_path):
    header, arrays = opened(whole)
    change(header)
    with pytest.raises(ValueError, match=rf"does not hold .*({message})"):
        forged(tmp_path / "model.npz", header, arrays)


def test_objects_within_objects_end_somewhere(whole, tmp_path):
    header, arrays = opened(whole)
    inner = header["parts"]["quantifier"]
    for _ in range(30):
        inner = {**header["parts"]["quantifier"], "parts": {"classifier": inner}}
    header["parts"]["quantifier"] = inner
    with pytest.raises(ValueError, match=r"too many others|missing|unexpected"):
        forged(tmp_path / "model.npz", header, arrays)


def test_a_file_that_is_damaged_is_refused(whole, tmp_path):
    content, path = whole.read_bytes(), tmp_path / "model.qn"
    rng = np.random.default_rng(0)
    for cut in rng.integers(0, len(content), 20):
        path.write_bytes(content[:cut])
        with pytest.raises(ValueError, match=r"model\.qn is broken, truncated"):
            load(path)
    refused = 0
    for place in rng.integers(0, len(content), 75):
        damaged = bytearray(content)
        damaged[place] ^= 1 << rng.integers(8)
        path.write_bytes(damaged)
        try:
            load(path)
        except ValueError as error:
            refused += str(path) in str(error)
    assert refused > 65  # the others are in padding


def test_a_newer_file_is_refused(whole, tmp_path):
    header, arrays = opened(whole)
    assert header["version"] == 5
    np.savez(
        tmp_path / "model.npz", header=np.array(json.dumps({**header, "version": 6})), **arrays
    )
    with pytest.raises(ValueError, match=r"version 6, written by .* install a newer"):
        load(tmp_path / "model.npz")


def test_whatever_is_forged_it_is_refused_or_a_quantifier_that_works(whole, tmp_path):
    """In a process of its own, as compiled code may end it."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.forging", tmp_path, whole]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stdout[-200:]}{done.stderr[-2000:]}"
