"""Cholesky's factor and the inverse by it: against numpy, refusals, symmetry, bits."""

from __future__ import annotations

import math

import numba
import numpy as np
import pytest

from streamomd.engine import compile as fuse
from streamomd.engine.linalg.factorisations import factor, invert

pytestmark = pytest.mark.smoke

EPS = 2.0**-52
SIZES = (1, 2, 3, 9, 33)


def positive(n: int, condition: float, seed: int) -> np.ndarray:
    """A symmetric matrix with eigenvalues from 1 to its condition."""
    rng = np.random.default_rng(seed)
    Q, _ = np.linalg.qr(rng.standard_normal((n, n)))
    A = Q * np.geomspace(1.0, condition, n) @ Q.T
    return (A + A.T) / 2.0


@pytest.mark.parametrize("condition", [1e0, 1e4, 1e8, 1e12])
@pytest.mark.parametrize("n", SIZES)
def test_factor_is_that_of_numpy(n, condition) -> None:
    """L L' = A to rounding, and L is numpy's as far as the condition allows."""
    A, L = positive(n, condition, n), np.full((n, n), np.nan)
    assert factor(A, n, L)
    L = np.tril(L)
    assert np.abs(L @ L.T - A).max() <= 4 * n * EPS * np.abs(A).max()
    exact = np.linalg.cholesky(A)
    assert np.abs(L - exact).max() <= 16 * n * EPS * condition * np.abs(exact).max()


@pytest.mark.parametrize("condition", [1e0, 1e4, 1e8, 1e12])
@pytest.mark.parametrize("n", SIZES)
def test_inverse_is_that_of_numpy(n, condition) -> None:
    """P A = I to rounding times the condition, P = numpy's likewise, and P = P' exactly."""
    A, (L, P) = positive(n, condition, 7 * n), np.full((2, n, n), np.nan)
    assert invert(A, n, L, P)
    assert (P == P.T).all()
    assert np.abs(P @ A - np.eye(n)).max() <= 16 * n * EPS * condition
    exact = np.linalg.inv(A)
    assert np.abs(P - exact).max() <= 16 * n * EPS * condition * np.abs(exact).max()
    assert np.linalg.eigvalsh(P).min() > 0.0


@pytest.mark.parametrize("size", [1e-150, 1e150])
def test_sizes_do_not_matter(size) -> None:
    """Entries of 1e-150 or 1e150, and rows of both: the inverse has all its digits."""
    A = positive(5, 10.0, 1)
    L, P, whole = np.zeros((3, 5, 5))
    assert invert(A, 5, L, whole)
    assert invert(size * A, 5, L, P)
    np.testing.assert_allclose(P * size, whole, rtol=1e-12)
    d = np.array([1.0, size, 1.0, 1.0, 1.0 / size])
    assert invert(A * d[:, None] * d, 5, L, P) == math.isfinite(size * size)


def test_only_the_leading_block_is_read_and_written() -> None:
    """Rows and columns from n on stay, whatever is in them."""
    A, P = positive(6, 100.0, 3), np.full((6, 6), 5.0)
    L, alone = np.zeros((2, 4, 4))
    assert invert(A[:4, :4].copy(), 4, L, alone)
    A[4:, :] = A[:, 4:] = np.nan
    L = np.full((6, 6), 7.0)
    assert invert(A, 4, L, P)
    assert P[:4, :4].tobytes() == alone.tobytes()
    assert (P[4:] == 5.0).all()
    assert (P[:, 4:] == 5.0).all()
    assert (L[4:] == 7.0).all()
    assert (L[:, 4:] == 7.0).all()


@pytest.mark.parametrize("at", [0, 2, 4])
@pytest.mark.parametrize(
    "kind", ["negative", "zero", "nan", "infinite", "nan off the diagonal", "singular"]
)
def test_what_is_not_positive_definite_is_refused(kind, at) -> None:
    """False for an invalid pivot at any place; P stays."""
    A, L, P = positive(5, 10.0, 5), np.zeros((5, 5)), np.full((5, 5), 5.0)
    bad = {"negative": -1.0, "zero": 0.0, "nan": math.nan, "infinite": math.inf}
    if kind in bad:
        A[at, at] = bad[kind]
    elif kind == "nan off the diagonal":
        A[at, 1] = A[1, at] = math.nan
    else:
        A = np.outer(np.arange(1.0, 6.0), np.arange(1.0, 6.0))
        A[at, at] = A[at, at] - 0.5
    assert not factor(A, 5, L)
    assert not invert(A, 5, L, P)
    assert (P == 5.0).all()


def test_compiled_factors_are_bit_identical() -> None:
    """The same factor, inverse and answer to the bit."""
    for reached in fuse._reached(invert):
        fuse._register(reached, False)
    fast = {one: numba.njit(error_model="numpy")(one) for one in (factor, invert)}
    for n in (1, 2, 7, 16, 37):
        for condition in (1.0, 1e6, 1e12):
            A = positive(n, condition, n)
            one, other = np.zeros((2, 2, n, n))
            for numbers, by in ((one, factor), (other, fast[factor])):
                assert by(A, n, numbers[0])
            assert one.tobytes() == other.tobytes()
            for numbers, by in ((one, invert), (other, fast[invert])):
                assert by(A, n, numbers[0], numbers[1])
            assert one.tobytes() == other.tobytes()
    A[3, 3] = -1.0
    assert not fast[invert](A, n, one[0], one[1])
