"""Training on Dask: without a cluster, on a real one, and with a worker killed."""

import itertools
import json
import os
import signal
import time
import warnings

import numpy as np
import pytest
import quapy as qp
import scipy.sparse
from sklearn.base import clone

from experiments.__main__ import main
from quapy_nemsis import NEMSIS, CANClassifier, NEMSISClassifier, SCANClassifier, get_measure
from quapy_nemsis.learners.nemsis import NemsisState
from tests.conftest import make_classes, make_points, true_posteriors

dask = pytest.importorskip("dask", reason="the extra dask is not installed")
da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")
pd = pytest.importorskip("pandas")
distributed = pytest.importorskip("distributed")

from quapy_nemsis import distributed as ours  # noqa: E402  needs Dask

LEARNERS = [
    NEMSISClassifier("q", random_state=0),
    NEMSISClassifier("bakld", eta0=0.3, radius=np.inf, random_state=0),
    SCANClassifier("cq", eta0=0.3, radius=np.inf, random_state=0),
]


@pytest.fixture(scope="module", autouse=True)
def one_thread_of_ones_own():
    with dask.config.set(scheduler="synchronous"):
        yield


def arrays(X, y, rows):
    return da.from_array(X, chunks=(rows, X.shape[1])), da.from_array(y, chunks=rows)


@pytest.mark.parametrize("learner", LEARNERS, ids=str)
def test_one_partition_is_the_serial_learner(learner):
    X, y = make_points(n=800)
    found = ours.fit(learner, *arrays(X, y, 800))
    expected = type(learner)(**learner.get_params()).fit(X, y)
    np.testing.assert_array_equal(found.coef_, expected.coef_)
    np.testing.assert_array_equal(found.predict_proba(X), expected.predict_proba(X))
    assert not hasattr(learner, "coef_")


@pytest.mark.parametrize("learner", LEARNERS, ids=str)
def test_partitions_together_do_as_well(learner):
    X, y = make_points(n=4000)
    found = ours.fit(learner, *arrays(X[:3000], y[:3000], 500))
    alone = type(learner)(**learner.get_params()).fit(X[:3000], y[:3000])
    assert found.t_ == alone.t_ == 60 * 3000
    measure = get_measure(learner.measure)
    scores = [measure.score(y[3000:], one.predict(X[3000:])) for one in (found, alone)]
    assert scores[0] > scores[1] - 0.03
    posterior = found.predict_proba(X[3000:])[:, 1]
    assert posterior.mean() == pytest.approx(y[3000:].mean(), abs=0.05)
    again = ours.fit(learner, *arrays(X[:3000], y[:3000], 500))
    np.testing.assert_array_equal(again.coef_, found.coef_)
    other = ours.fit(learner, *arrays(X[:3000], y[:3000], 1000))
    assert not np.array_equal(other.coef_, found.coef_)


def test_every_kind_of_collection():
    X, y = make_points(n=900)
    learner = NEMSISClassifier("q", eta0=0.3, radius=np.inf, random_state=0)
    expected = ours.fit(learner, *arrays(X, y, 300))
    pairs = [dask.delayed((X[a : a + 300], y[a : a + 300])) for a in (0, 300, 600)]
    np.testing.assert_array_equal(ours.fit(learner, pairs).coef_, expected.coef_)
    frame = dd.from_pandas(pd.DataFrame(X), npartitions=3, sort=False)
    labels = dd.from_pandas(pd.Series(y), npartitions=3, sort=False)
    np.testing.assert_array_equal(ours.fit(learner, frame, labels).coef_, expected.coef_)
    sparse = [
        dask.delayed((scipy.sparse.csr_matrix(X[a : a + 300]), y[a : a + 300]))
        for a in (0, 300, 600)
    ]
    np.testing.assert_allclose(ours.fit(learner, sparse).coef_, expected.coef_, rtol=1e-9)
    columns = da.from_array(X, chunks=(300, 2))  # cut along the features too
    rows = da.from_array(y, chunks=300)
    np.testing.assert_array_equal(ours.fit(learner, columns, rows).coef_, expected.coef_)

    share = expected.predict(X).mean()
    parts = [dask.delayed(X[a : a + 300]) for a in (0, 300, 600)]
    for collection in (da.from_array(X, chunks=(300, 6)), columns, frame, parts):
        np.testing.assert_allclose(ours.prevalence(expected, collection), [1 - share, share])
        found = ours.predict(expected, collection)
        found = dask.compute(*found) if isinstance(found, list) else [found.compute()]
        np.testing.assert_array_equal(np.concatenate(found), expected.predict(X))


GIVEN = NEMSISClassifier("q", eta0=0.3, radius=np.inf, random_state=0)


def test_empty_partitions_change_nothing():
    X, y = make_points(n=900)
    kept = (np.arange(900) < 200) | (np.arange(900) >= 700)  # the middle one of three has no rows
    expected = ours.fit(GIVEN, [(X[:200], y[:200]), (X[700:], y[700:])])
    mask = da.from_array(kept, chunks=300)
    filtered = [part[mask] for part in arrays(X, y, 300)]
    np.testing.assert_array_equal(ours.fit(GIVEN, *filtered).coef_, expected.coef_)
    frame = dd.from_pandas(pd.DataFrame(X), npartitions=3, sort=False)
    frame = frame[dd.from_pandas(pd.Series(kept), npartitions=3, sort=False)]
    parts = [dask.delayed(X[a:b]) for a, b in ((0, 200), (200, 200), (700, 900))]
    for collection in (filtered[0], frame, parts):
        found = ours.predict(expected, collection)
        found = dask.compute(*found) if isinstance(found, list) else [found.compute()]
        np.testing.assert_array_equal(np.concatenate(found), expected.predict(X[kept]))
        assert ours.prevalence(expected, collection)[1] == expected.predict(X[kept]).mean()
    # One that is not empty is one partition.
    alone = ours.fit(GIVEN, [(X[:0], y[:0]), (X, y)])
    np.testing.assert_array_equal(alone.coef_, clone(GIVEN).fit(X, y).coef_)
    with pytest.raises(ValueError, match="all partitions are empty"):
        ours.fit(GIVEN, [(X[:0], y[:0])] * 2)


def test_sparse_blocks_that_are_not_canonical():
    X, y = make_points(n=400)
    X[np.abs(X) < 0.5] = 0.0
    neat = scipy.sparse.csr_matrix(X)
    # Each entry as two halves, and rows from the last to the first, which turns their columns around.
    indptr = 2 * (neat.nnz - neat.indptr[::-1])
    turned = (np.repeat(neat.data / 2, 2)[::-1], np.repeat(neat.indices, 2)[::-1], indptr)
    halves = scipy.sparse.csr_matrix(turned, shape=X.shape)
    neat, y = neat[::-1], y[::-1]
    for cuts in ((0, 400), (0, 150, 400)):
        edges = list(itertools.pairwise(cuts))
        expected = ours.fit(GIVEN, [(neat[a:b], y[a:b]) for a, b in edges])
        blocks = [(halves[a:b], y[a:b]) for a, b in edges]
        np.testing.assert_array_equal(ours.fit(GIVEN, blocks).coef_, expected.coef_)
        assert not blocks[0][0].has_canonical_format  # what is given stays as it was


def test_partitions_that_do_not_go_together():
    X, y = make_points(n=300)
    frame, y = pd.DataFrame(X, columns=list("abcdef")), y.astype(int)
    with pytest.raises(ValueError, match="partitions 0 and 2 have different types of labels"):
        ours.fit(GIVEN, [(X, y), (X, y.astype(float)), (X, y.astype(str))])
    with pytest.raises(ValueError, match="0 and 1 have different kinds of matrices: 'dense' and"):
        ours.fit(GIVEN, [(X, y), (scipy.sparse.csr_matrix(X), y)])
    with pytest.raises(ValueError, match="0 and 1 have different columns"):
        ours.fit(GIVEN, [(frame, y), (frame[list("badcfe")], y)])
    mixed = ours.fit(GIVEN, [(X, y), (X, y > 0), (X, y.astype(float))])  # all of them numbers
    np.testing.assert_array_equal(mixed.coef_, ours.fit(GIVEN, [(X, y)] * 3).coef_)


@pytest.mark.parametrize("partitions", [1, 3])
def test_names_of_columns(partitions):
    X, y = make_points(n=300)
    frame, labels = pd.DataFrame(X, columns=list("abcdef")), pd.Series(y)
    rows = dd.from_pandas(frame, npartitions=partitions, sort=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = ours.fit(GIVEN, rows, dd.from_pandas(labels, npartitions=partitions, sort=False))
        expected = clone(GIVEN).fit(frame, labels)
        if partitions == 1:
            np.testing.assert_array_equal(found.coef_, expected.coef_)
        np.testing.assert_array_equal(found.feature_names_in_, expected.feature_names_in_)
        assert found.feature_names_in_.dtype == object
        np.testing.assert_array_equal(ours.predict(found, rows).compute(), found.predict(frame))
        ours.prevalence(found, rows)
        ours.prevalence(clone(GIVEN).fit(X, y), rows)  # which has no names to compare
    permuted = rows[list("badcfe")]
    with pytest.raises(ValueError, match="feature names should match"):
        ours.predict(found, permuted).compute()
    with pytest.raises(ValueError, match="feature names should match"):
        ours.prevalence(found, permuted)


def test_what_is_not_a_collection_of_dask():
    X, y = make_points(n=100)
    rows, labels = arrays(X, y, 50)
    fitted = clone(GIVEN).fit(X, y)
    for wrong in (X, pd.DataFrame(X), rows[:, 0], dask.delayed(X), "rows"):
        for ask in (ours.predict, ours.prevalence):
            with pytest.raises(TypeError, match=r"X must be a dask array.*learner\.predict"):
                ask(fitted, wrong)
        with pytest.raises(TypeError, match=r"X must be a dask array.*learner\.fit"):
            ours.fit(GIVEN, wrong, labels)
        with pytest.raises(TypeError, match="without y, X must be a sequence of delayed pairs"):
            ours.fit(GIVEN, wrong)
    for wrong in (y, pd.Series(y), "y", [y[:50], y[50:]]):
        with pytest.raises(TypeError, match=r"y must be a dask array or Series.*learner\.fit"):
            ours.fit(GIVEN, rows, wrong)


def test_pairs_that_are_on_the_workers_or_here():
    X, y = make_points(n=200)
    pairs = [(X[:80], y[:80]), (X[80:], y[80:])]
    expected = ours.fit(GIVEN, [dask.delayed(pair) for pair in pairs])
    np.testing.assert_array_equal(ours.fit(GIVEN, pairs).coef_, expected.coef_)
    options = {"processes": False, "n_workers": 1, "dashboard_address": None}
    with distributed.Client(**options) as client, dask.config.set(scheduler=client):
        found = ours.fit(GIVEN, client.scatter(pairs))
    np.testing.assert_array_equal(found.coef_, expected.coef_)


def test_a_rare_class_is_in_the_sample(monkeypatch):
    monkeypatch.setattr(ours, "_SAMPLE", 100)
    X, y = make_points(n=3000, share=0.004)
    assert 5 < y.sum() < 30
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = ours.fit(NEMSISClassifier("q", random_state=0), *arrays(X, y, 1000))
        again = ours.fit(NEMSISClassifier("q", random_state=0), *arrays(X, y, 1000))
    np.testing.assert_array_equal(found.coef_, again.coef_)
    points = found.calibration_
    assert points.labels.sum() == min(10, y.sum())
    # The sample has more of the class than the data, its posteriors have not.
    share = points.weights[points.labels].sum() / points.weights.sum()
    assert share == pytest.approx(y.mean())


def test_what_is_refused():
    X, y = make_points(n=400)
    learner = NEMSISClassifier("q", eta0=0.3, random_state=0)
    with pytest.raises(TypeError, match="got CANClassifier"):
        ours.fit(CANClassifier(), *arrays(X, y, 100))
    with pytest.raises(ValueError, match="X has 4 partitions and y has 2"):
        ours.fit(learner, da.from_array(X, chunks=(100, 6)), da.from_array(y, chunks=200))
    bad = X.copy()
    bad[250, 3] = np.nan
    with pytest.raises(ValueError, match=r"partition 2: .*contains NaN"):
        ours.fit(learner, *arrays(bad, y, 100))
    with pytest.raises(ValueError, match="one class"):
        ours.fit(learner, *arrays(X, np.ones(400), 100))
    with pytest.raises(ValueError, match="different numbers of features"):
        ours.fit(learner, [(X, y), (X[:, :3], y)])
    steep = NEMSISClassifier("ba", eta0=1e308, radius=np.inf)
    with pytest.raises(ValueError, match=r"infinite or NaN in partition \d"):
        ours.fit(steep, *arrays(X, y, 100))
    fitted = ours.fit(learner, *arrays(X, y, 100))
    with pytest.raises(ValueError, match="no rows to count"):
        ours.prevalence(fitted, [dask.delayed(X[:0])])


# ----------------------------------------------------------------------- more than two classes

CLASS_LEARNERS = [
    NEMSISClassifier("q", n_passes=3, random_state=0),
    NEMSISClassifier("bakld", eta0=0.5, radius=np.inf, n_passes=3, class_weight={"bee": 2.0}),
    SCANClassifier("cq", n_passes=3, random_state=0),
]
NAMES = np.array(["ant", "bee", "cat"])


@pytest.mark.parametrize("learner", CLASS_LEARNERS, ids=str)
def test_partitions_of_several_classes(learner):
    X, y = make_classes(n=2000, d=4)
    y = NAMES[y]
    learner = clone(learner).set_params(random_state=0)
    alone = clone(learner).fit(X[:1500], y[:1500])
    one = ours.fit(learner, *arrays(X[:1500], y[:1500], 1500))
    np.testing.assert_array_equal(one.coef_, alone.coef_)
    found = ours.fit(learner, *arrays(X[:1500], y[:1500], 300))
    assert found.coef_.shape == (3, 4)
    assert found.t_ == alone.t_ == 4500
    measure = get_measure(learner.measure)
    scores = [measure.score(y[1500:], one.predict(X[1500:])) for one in (found, alone)]
    assert scores[0] > scores[1] - 0.03
    if learner.class_weight is None:
        posteriors = found.predict_proba(X)
        assert np.abs(posteriors - true_posteriors(X)).mean() < 0.05
    rows = da.from_array(X, chunks=(300, 4))
    predicted = ours.predict(found, rows).compute()
    np.testing.assert_array_equal(predicted, found.predict(X))
    shares = [np.mean(predicted == name) for name in NAMES]
    np.testing.assert_allclose(ours.prevalence(found, rows), shares)
    # Classes that only some partitions have.
    order = np.argsort(y[:1500], kind="stable")
    sorted_rows = ours.fit(learner, *arrays(X[order], y[order], 300))
    assert sorted_rows.classes_.tolist() == NAMES.tolist()
    assert np.isfinite(sorted_rows.predict_proba(X)).all()


def test_sparse_partitions_of_several_classes():
    X, y = make_classes(n=600, d=4)
    learner = NEMSISClassifier("q", eta0=0.5, radius=np.inf, n_passes=2, random_state=0)
    dense = ours.fit(learner, [(X[a : a + 200], y[a : a + 200]) for a in (0, 200, 400)])
    rows = scipy.sparse.csr_matrix(X)
    sparse = ours.fit(learner, [(rows[a : a + 200], y[a : a + 200]) for a in (0, 200, 400)])
    np.testing.assert_allclose(sparse.coef_, dense.coef_, rtol=1e-9, atol=1e-12)


def test_balanced_classes_are_weighted_over_all_partitions():
    X, y = make_classes(n=900, d=4)
    learner = NEMSISClassifier("q", eta0=0.5, radius=np.inf, n_passes=2, random_state=0)
    factors = dict(enumerate(900 / (3 * np.bincount(y))))
    order = np.argsort(y, kind="stable")  # partitions with few classes
    partitions = arrays(X[order], y[order], 300)
    given = ours.fit(clone(learner).set_params(class_weight=factors), *partitions)
    found = ours.fit(clone(learner).set_params(class_weight="balanced"), *partitions)
    np.testing.assert_array_equal(found.coef_, given.coef_)
    assert not np.array_equal(found.coef_, ours.fit(learner, *partitions).coef_)


def test_a_rare_class_of_several_is_in_the_sample(monkeypatch):
    monkeypatch.setattr(ours, "_SAMPLE", 100)
    X, y = make_classes(n=3000, d=4, shares=(0.69, 0.305, 0.005))
    assert 5 < (y == 2).sum() < 30
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = ours.fit(NEMSISClassifier("q", n_passes=2, random_state=0), *arrays(X, y, 1000))
    points = found.calibration_
    assert (points.labels == 2).sum() >= min(10, (y == 2).sum())
    # The sample has more of the class than the data, its posteriors have not.
    shares = np.bincount(points.labels, points.weights) / points.weights.sum()
    np.testing.assert_allclose(shares, np.bincount(y) / 3000, atol=1e-9)


@pytest.fixture(scope="module")
def cluster():
    """A real cluster of two processes with a thread each."""
    options = {"threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with (
        distributed.LocalCluster(n_workers=2, **options) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def executed(client):
    """How many tasks the workers have run."""
    return sum(
        client.run(lambda dask_worker: dask_worker.state.executed_count, nanny=False).values()
    )


def test_model_selection_of_quapy_on_a_cluster(cluster):
    X, y = make_points(n=900)
    training = qp.data.LabelledCollection(X[:500], y[:500].astype(int))
    validation = qp.data.LabelledCollection(X[500:], y[500:].astype(int))
    protocol = qp.protocol.APP(validation, 50, n_prevalences=5, repeats=2, random_state=0)
    grid = {"eta0": [0.01, 0.1, 1.0], "measure": ["q", "kld"]}

    def search():
        learner = NEMSIS(random_state=0)
        return qp.model_selection.GridSearchQ(learner, grid, protocol).fit(*training.Xy)

    expected = search()
    before = executed(cluster)
    with ours.quapy_on_dask():
        found = search()
    assert executed(cluster) >= before + 6
    assert found.param_scores_ == expected.param_scores_
    assert found.best_params_ == expected.best_params_
    before = executed(cluster)
    search()
    assert executed(cluster) == before


def test_a_comparison_on_a_cluster(cluster, tmp_path, capsys):
    arguments = ["compare", "--sets", "breast_cancer", "--methods", "CC", "ACC(NEMSIS:q)"]
    arguments += [
        "--repeats",
        "2",
        "--prevalences",
        "3",
        "--seeds",
        "1",
        "--format",
        "csv",
        "--out",
    ]
    main([*arguments, str(tmp_path / "local")])
    before = executed(cluster)
    main([*arguments, str(tmp_path / "there"), "--dask", cluster.scheduler.address])
    assert executed(cluster) >= before + 2
    assert "2 workers of the Dask cluster" in capsys.readouterr().out
    records = [
        [
            json.loads(path.read_text())["record"]
            for path in sorted((tmp_path / name / "cells").iterdir())
        ]
        for name in ("local", "there")
    ]
    assert len(records[0]) == 2
    for here, there in zip(*records, strict=True):
        assert (here["method"], here["estimated"]) == (there["method"], there["estimated"])


def test_clusters_that_cannot_be_used(tmp_path):
    arguments = ["compare", "--methods", "CC", "--out", str(tmp_path), "--dask"]
    with pytest.raises(SystemExit, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:1 "):
        main([*arguments, "tcp://127.0.0.1:1"])
    options = {"processes": False, "dashboard_address": None}
    with distributed.LocalCluster(n_workers=1, threads_per_worker=2, **options) as threads:
        with pytest.raises(SystemExit, match="one thread each: start them with --nthreads 1"):
            main([*arguments, threads.scheduler_address])
        threads.scale(0)
        threads.sync(threads._correct_state)
        with pytest.raises(SystemExit, match="has no workers"):
            main([*arguments, threads.scheduler_address])


def slow_block(X, y, seconds):
    time.sleep(seconds)
    return X, y


def test_workers_change_nothing_and_may_die(cluster, monkeypatch):
    """The last test of the cluster: one of its two workers is killed in the middle."""
    X, y = make_points(n=8000, d=20)
    learner = NEMSISClassifier("q", eta0=0.3, radius=np.inf, n_passes=8, random_state=0)

    def pairs():
        cuts = [slice(a, a + 2000) for a in range(0, 8000, 2000)]
        return [dask.delayed(slow_block)(X[cut], y[cut], 0.2) for cut in cuts]

    expected = ours.fit(learner, pairs())
    with dask.config.set(scheduler=cluster):
        np.testing.assert_array_equal(ours.fit(learner, pairs()).coef_, expected.coef_)
        victim = next(iter(cluster.run(os.getpid).values()))
        merged, real = [], NemsisState.merge

        def merge_and_kill(states, base):
            merged.append(real(states, base))
            if len(merged) == 3:
                os.kill(victim, signal.SIGKILL)
            return merged[-1]

        monkeypatch.setattr(NemsisState, "merge", staticmethod(merge_and_kill))
        survived = ours.fit(learner, pairs())
        np.testing.assert_array_equal(survived.coef_, expected.coef_)
        assert len(merged) > 3
        assert victim not in cluster.run(os.getpid).values()
