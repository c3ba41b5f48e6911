"""The process against its formulas, written out with dense matrices."""

import numpy as np
import pytest

from gpucomp.tuning import gaussian
from gpucomp.tuning.gaussian import Posterior, Scales, fit, matern

RNG = np.random.default_rng(0)
X = RNG.random((13, 3)).astype(np.float32)
C = RNG.random((7, 3)).astype(np.float32)
Y = RNG.standard_normal(13)
SCALES = Scales(np.array([0.3, 0.9, 2.0]), variance=1.7, noise=0.02)


def dense(x, y, c):
    noise = (SCALES.noise + gaussian.JITTER) * np.eye(len(x))
    weights = np.linalg.solve(matern(x, x, SCALES) + noise, matern(x, c, SCALES))
    return weights.T @ y, SCALES.variance - (matern(x, c, SCALES) * weights).sum(0)


def test_the_kernel_is_matern_of_five_halves():
    r = np.sqrt(5 * (((X[0] - C[0]) / SCALES.lengths) ** 2).sum())

    assert matern(X, C, SCALES)[0, 0] == pytest.approx(1.7 * (1 + r + r * r / 3) * np.exp(-r), rel=1e-5)
    assert np.diag(matern(X, X, SCALES)) == pytest.approx(1.7, rel=1e-3)


def test_the_posterior_is_the_textbooks():
    found = Posterior(X, C, SCALES, room=13)
    mean, variance = dense(X, Y, C)

    assert found.mean(Y) == pytest.approx(mean, abs=1e-4)
    assert found.deviation() == pytest.approx(np.sqrt(variance), abs=1e-3)


def test_points_added_one_by_one_give_the_same():
    found = Posterior(X[:4], C, SCALES, room=13)
    for point in X[4:]:
        found.add(point)
    mean, variance = dense(X, Y, C)

    assert found.mean(Y) == pytest.approx(mean, abs=1e-4)
    assert found.variance == pytest.approx(variance, abs=1e-4)


def test_a_believed_result_changes_no_expectation_but_makes_it_surer():
    without = Posterior(X[:12], C, SCALES, room=13)
    found = Posterior(X[:12], C, SCALES, room=13)
    found.add(C[2])
    y = np.append(Y[:12], 0.0)
    y[12] = found.believed(y, 12)

    assert found.mean(y) == pytest.approx(without.mean(Y[:12]), abs=1e-4)
    assert found.deviation()[2] < 0.5 * without.deviation()[2]
    assert y[12] == pytest.approx(without.mean(Y[:12])[2], abs=1e-3)


@pytest.mark.parametrize("groups", [[0, 1, 2], [0, 0, 1], [0, 0, 0]])
def test_the_gradient_is_that_of_the_loss(groups):
    groups = np.array(groups)
    theta = np.log([*[0.3, 0.9, 2.0][: groups[-1] + 1], 1.7, 0.02])
    _, gradient = gaussian._loss(X.astype(float), Y, theta, groups)

    assert len(gradient) == len(theta)
    for k in range(len(theta)):
        step = 1e-5 * np.eye(len(theta))[k]
        above, below = (gaussian._loss(X.astype(float), Y, theta + s, groups)[0] for s in (step, -step))
        assert gradient[k] == pytest.approx((above - below) / 2e-5, rel=1e-3, abs=1e-4)


def test_features_of_a_group_have_one_length():
    start = Scales(np.full(3, 0.5))

    found, _ = fit(X, Y, start, start, groups=np.array([0, 1, 1]))

    assert found.lengths[1] == found.lengths[2] != found.lengths[0]


def test_a_fit_finds_the_features_that_matter():
    x = np.random.default_rng(1).random((60, 3)).astype(np.float32)
    y = np.sin(9 * x[:, 0])
    start = Scales(np.full(3, 0.5))

    found, loss = fit(x, (y - y.mean()) / y.std(), start, start, steps=40)

    assert found.lengths[0] < 0.5 < min(found.lengths[1:])
    assert loss < fit(x, np.random.default_rng(2).permutation(y) / y.std(), start, start, steps=40)[1]
    assert all(
        bound[0] * 0.999 <= v <= bound[1] * 1.001
        for v, bound in zip(found.lengths, [gaussian.LENGTHS] * 3, strict=True)
    )


def test_points_that_coincide_are_refused_or_told_apart_by_noise():
    twice = np.concatenate([X[:1]] * 40)

    assert np.isfinite(Posterior(twice, C, SCALES, room=40).mean(np.ones(40))).all()
    assert np.isfinite(fit(twice, RNG.standard_normal(40), SCALES, SCALES)[1])
