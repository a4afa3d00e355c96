"""Programs of other libraries, if installed (`python -m pip install ".[bench]"`)."""

# pyright: reportMissingImports=false
# the other libraries may be missing

from __future__ import annotations

import warnings
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np

Programs = dict[str, Callable[[], Any]]


def installed(package: str) -> bool:
    return find_spec(package) is not None


def torch_attention(q: Any, k: Any, v: Any, gradient: bool) -> Programs:
    """PyTorch's scaled dot-product attention; v is padded to the width of q, the fast case."""
    if not installed("torch"):
        return {}
    import torch

    width = v.shape[1]
    padded = np.zeros_like(np.asarray(q))
    padded[:, :width] = v
    q, k, v = (
        torch.from_numpy(np.array(a))[None, None].requires_grad_(gradient) for a in (q, k, padded)
    )

    def attend() -> Any:
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, scale=1.0)
        if not gradient:
            return out[0, 0, :, :width].numpy()
        slopes = torch.autograd.grad((out[..., :width] ** 2).sum(), (q, k, v))
        of_q, of_k, of_v = (slope[0, 0].numpy() for slope in slopes)
        return of_q, of_k, of_v[:, :width]

    return {"torch SDPA": attend}


def exact_regression(x: Any, y: Any, at: Any, temperature: float, ridge: float) -> Programs:
    """Exact KRR on the exponential kernel for a batch of tasks: SciPy in a loop, and PyTorch."""
    x, y, at = (np.asarray(a) for a in (x, y, at))
    n, programs = x.shape[1], {}
    if installed("scipy"):
        from scipy.linalg import cho_factor, cho_solve

        def loop() -> Any:
            predictions = []
            for x_, y_, at_ in zip(x, y, at, strict=True):
                A = np.exp(x_ @ x_.T / x.dtype.type(temperature))
                A[np.diag_indices(n)] += ridge
                factor = cho_factor(A, lower=True, overwrite_a=True, check_finite=False)
                alpha = cho_solve(factor, y_, check_finite=False)
                predictions.append(np.exp(at_ @ x_.T / x.dtype.type(temperature)) @ alpha)
            return np.stack(predictions)

        programs["SciPy, loop"] = loop
    if installed("torch"):
        import torch

        X, Y, Q = (torch.from_numpy(np.array(a)) for a in (x, y, at))
        eye = torch.eye(n, dtype=X.dtype)

        def batched(solve: Callable[[Any, Any], Any]) -> Callable[[], Any]:
            def program() -> Any:
                A = torch.exp(X @ X.mT / temperature) + ridge * eye
                alpha = solve(A, Y[..., None])
                return (torch.exp(Q @ X.mT / temperature) @ alpha)[..., 0].numpy()

            return program

        def by_cholesky(A: Any, b: Any) -> Any:
            return torch.cholesky_solve(b, torch.linalg.cholesky(A))

        programs["torch, Cholesky"] = batched(by_cholesky)
        programs["torch, solve"] = batched(torch.linalg.solve)
    return programs


def conjugate_gradients(x: Any, y: Any, at: Any, temperature: float, ridge: float) -> Programs:
    """16 iterations on the exponential kernel: batched NumPy, and linear_operator (mBCG)."""
    x, y, at = (np.asarray(a) for a in (x, y, at))

    def numpy() -> Any:
        A = np.exp(x @ x.swapaxes(1, 2) / x.dtype.type(temperature))
        A[:, np.arange(x.shape[1]), np.arange(x.shape[1])] += ridge
        alpha, r = np.zeros_like(y), y.copy()
        p, rr = r.copy(), np.sum(y * y, 1, keepdims=True)
        for _ in range(16):
            Ap = (A @ p[..., None])[..., 0]
            gamma = rr / np.sum(p * Ap, 1, keepdims=True)
            alpha += gamma * p
            r -= gamma * Ap
            rr, last = np.sum(r * r, 1, keepdims=True), rr
            p = r + rr / last * p
        kernel = np.exp(at @ x.swapaxes(1, 2) / x.dtype.type(temperature))
        return (kernel @ alpha[..., None])[..., 0]

    programs: Programs = {"NumPy": numpy}
    if installed("linear_operator"):
        import torch
        from linear_operator.utils.linear_cg import linear_cg

        X, Y, Q = (torch.from_numpy(np.array(a)) for a in (x, y, at))
        eye = torch.eye(x.shape[1], dtype=X.dtype)

        def mbcg() -> Any:
            A = torch.exp(X @ X.mT / temperature) + ridge * eye
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # it warns that 16 iterations do not converge
                alpha = linear_cg(
                    A.matmul, Y[..., None], max_iter=16, max_tridiag_iter=1, tolerance=1e-30
                )
            return (torch.exp(Q @ X.mT / temperature) @ alpha)[..., 0].numpy()

        programs["linear_operator"] = mbcg
    return programs
