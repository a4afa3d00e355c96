"""Every solver once more, in NumPy and SciPy: textbook formulas that share no code with icl_krr.

The reference of a solver has the name of its row. It takes a `Regression`, without what a mask
hides, the number of steps, and what else its solver takes. It computes step sizes, momenta and
polynomials from the spectrum by itself. It returns {field: iterates}, with outputs as last axis.
"""

from typing import NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse.linalg
import scipy.special
import scipy.stats


class Regression(NamedTuple):
    """Kernel matrices [n, n] and [q, n], y [n, r], and features [n, m] and [q, m] with k = <,>."""

    gram: np.ndarray
    cross: np.ndarray
    y: np.ndarray
    ridge: float
    x: np.ndarray = np.zeros((0, 0))
    at: np.ndarray = np.zeros((0, 0))

    @property
    def A(self):
        return self.gram + self.ridge * np.eye(len(self.gram))

    @property
    def spectrum(self):
        return np.linalg.eigvalsh(self.A)[[0, -1]]


def gram(kernel, x, z):
    """The kernels of this library, entry by entry."""
    x, z = np.asarray(x), np.asarray(z)
    if hasattr(kernel, "temperature"):
        return np.array([[np.exp(a @ b / kernel.temperature) for b in z] for a in x])
    if hasattr(kernel, "lengthscale"):
        scale = 2 * kernel.lengthscale**2
        return np.array([[np.exp(-((a - b) @ (a - b)) / scale) for b in z] for a in x])
    return np.array([[a @ b for b in z] for a in x])


def named(names, iterates):
    return dict(zip(names, map(np.stack, zip(*iterates, strict=True)), strict=True))


def with_prediction(system, fields):
    """With what is predicted at the queries, after the supports."""
    return fields | {"prediction": fields["along"][:, len(system.y) :]}


def trajectory_of(system, alphas):
    """What follows from the iterates 0 to steps + 1; p is the way from one to the next."""
    alphas = np.stack(alphas)
    r = system.y - system.A @ alphas
    steps = {"alpha": alphas, "r": r, "prediction": system.cross @ alphas}
    return {name: path[:-1] for name, path in steps.items()} | {"p": np.diff(alphas, axis=0)}


def stationary(system, steps, M):
    """Every step adds M (y - A alpha)."""
    alphas = [0 * system.y]
    for _ in range(steps + 1):
        alphas.append(alphas[-1] + M @ (system.y - system.A @ alphas[-1]))
    return trajectory_of(system, alphas)


def gradient_descent(system, steps, step_size=None):
    eta = 2 / sum(system.spectrum) if step_size is None else step_size
    return stationary(system, steps, eta * np.eye(len(system.y)))


def gradient_descent_in_alpha(system, steps, step_size=None):
    """The best step for the eigenvalues of A K that are not 0; only half of it if there is a 0."""
    low, high = scipy.linalg.eigvalsh(system.A @ system.gram)[[0, -1]]
    best = 2 / (low + high) if low > 1e-9 * high else 1 / high
    return stationary(system, steps, (best if step_size is None else step_size) * system.gram)


def richardson(system, steps, step_size=1.0, sink=None):
    c = system.ridge if sink is None else sink
    return stationary(system, steps, np.diag(step_size / (system.gram.sum(axis=1) + c)))


def heavy_ball(system, steps, step_size=None, momentum=None):
    """Polyak's recurrence of two terms, with a double root at either end of the spectrum."""
    if step_size is None:
        low, high = np.sqrt(system.spectrum)
        step_size = (2 / (low + high)) ** 2
        momentum = (1 - np.sqrt(step_size) * low) ** 2
    alphas = [0 * system.y, 0 * system.y]
    for _ in range(steps + 1):
        last, before = alphas[-1], alphas[-2]
        gradient = system.A @ last - system.y
        alphas.append(last - step_size * gradient + momentum * (last - before))
    return trajectory_of(system, alphas[1:])


def polynomial(system, steps, low, high, M):
    """The error is T_t / T_t(0) of M^-1 A times the first one; T_t is Chebyshev's on the bounds."""
    s, V = scipy.linalg.eigh(system.A, M)
    exact, alphas = scipy.linalg.solve(system.A, system.y, assume_a="pos"), []
    for t in range(steps + 2):
        T = np.polynomial.chebyshev.Chebyshev.basis(t, domain=[low, high])
        alphas.append(exact - (V * (T(s) / T(0.0))) @ V.T @ M @ exact)
    return trajectory_of(system, alphas)


def chebyshev(system, steps, spectrum=None):
    low, high = system.spectrum if spectrum is None else spectrum
    return polynomial(system, steps, low, high, np.eye(len(system.y)))


def preconditioned_chebyshev(system, steps, num_supports, largest=1.0):
    low = 1 / (1 + num_supports * largest / system.ridge)
    return polynomial(system, steps, low, 1.0, np.diag(system.A.sum(axis=1)))


def conjugate_gradient(system, steps, M=None):
    """SciPy's, for each output; p_t is the step that it takes, with p_t^T r_t = r_t^T M^-1 r_t."""
    inverse, paths = np.eye(len(system.A)) if M is None else np.linalg.inv(M), []
    for y in system.y.T:
        path = [0 * y]

        def note(alpha, path=path):
            path.append(alpha.copy())

        scipy.sparse.linalg.cg(system.A, y, M=inverse, rtol=1e-13, maxiter=steps + 1, callback=note)
        paths.append(path + path[-1:] * (steps + 2 - len(path)))
    fields = trajectory_of(system, np.moveaxis(np.stack(paths), 0, -1))
    r, p = fields["r"], fields["p"]
    lengths = np.sum(r * (inverse @ r), axis=1), np.sum(p * r, axis=1)
    scale = np.divide(*lengths, out=np.zeros_like(lengths[0]), where=lengths[1] > 0)
    return fields | {"p": scale[:, None] * p}


def jacobi_conjugate_gradient(system, steps):
    return conjugate_gradient(system, steps, np.diag(np.diag(system.A)))


def normalised_conjugate_gradient(system, steps):
    return conjugate_gradient(system, steps, np.diag(system.A.sum(axis=1)))


def nystrom_conjugate_gradient(system, steps, rank):
    C, W = system.gram[:, :rank], system.gram[:rank, :rank]
    M = C @ np.linalg.solve(W, C.T) + system.ridge * np.eye(len(C))
    return conjugate_gradient(system, steps, M)


fused_conjugate_gradient = pipelined_conjugate_gradient = conjugate_gradient


def newton_schulz(system, steps):
    """I - C V_t = (I - s C)^(2^t) for V_0 = s I."""
    x, eye = system.x, np.eye(system.x.shape[1])
    C, s, fields = x.T @ x + system.ridge * eye, 2 / sum(system.spectrum), []
    for t in range(steps + 1):
        V = np.linalg.solve(C, eye - np.linalg.matrix_power(eye - s * C, 2**t))
        alpha = (system.y - x @ V @ x.T @ system.y) / system.ridge
        fields.append((alpha, system.y - system.A @ alpha, system.at @ V @ x.T @ system.y))
    return named(("alpha", "r", "prediction"), fields)


def gradient_descent_plus_plus(system, steps, step_size, curvature):
    """Gradient descent in w on features that (I - c X^T X) transforms after every step."""
    x, at, r = system.x, system.at, system.y
    fields = [(r, at @ x.T @ r * 0)]
    for _ in range(steps):
        w, flat = step_size * x.T @ r, np.eye(x.shape[1]) - curvature * x.T @ x
        r, f = r - x @ w, fields[-1][1] + at @ w
        x, at = x @ flat, at @ flat
        fields.append((r, f))
    return named(("r", "prediction"), fields)


def nadaraya_watson(system, steps):
    weights = system.cross / system.cross.sum(axis=1, keepdims=True)
    return {"weights": weights, "prediction": weights @ system.y}


# The rules of layers, from their equations: the state S [K, V], further states, and what a token
# has, k [K], v [V], beta and g, the logarithm of its gates. They return the coefficients [V] of the
# token and the states after it.


def gated_delta_rule(S, k, v, beta, g=0.0):
    """Gated DeltaNet; KDA for a vector g."""
    S = np.exp(g)[..., None] * S
    alpha = beta * (v - S.T @ k)
    return alpha, S + np.outer(k, alpha)


def longhorn(S, k, v, beta, g=0.0):
    return gated_delta_rule(S, k, v, beta / (1 + beta * k @ k), g)


def momentum_delta_net(S, M, k, v, eta, beta, mu, alpha):
    """Momentum DeltaNet with p = k: M is the gradient, which S subtracts."""
    error = S.T @ k - v
    M = mu * M + np.outer(eta * k, error)
    return -eta * error, alpha * S - beta * M, M


def preconditioned(S, A, k, v, beta, g=0.0, step_size=1.0, squash=None, center=0.0):
    S, A = np.exp(g)[..., None] * S, np.exp(g) * A + beta * k**2
    u = np.log(A) - center
    M = 1 / A if squash is None else squash ** (-u / (1 + np.abs(u)))
    alpha = step_size * beta * (v - S.T @ k)
    return alpha, S + np.outer(M * k, alpha), A


def kalman(S, p, k, v, r, omega, g=0.0, info_scale=1.0):
    """With the noise r of the token; isotropic if p has one number."""
    decay, squares = np.exp(2 * g), k**2
    if len(p) == 1:
        decay, squares = np.mean(decay), np.mean(squares)
    predicted = decay * p + omega
    gain = predicted * k / (r + np.sum(predicted * k**2))
    S = np.exp(g)[..., None] * S
    error = v - S.T @ k
    return error, S + np.outer(gain, error), 1 / (1 / predicted + info_scale * squares / r)


def of_layer(rule, q, *sequences, others=(), **numbers):
    """What a layer reads at q [T, K] after each token; its S starts as 0."""
    states, o = (np.zeros((q.shape[1], sequences[1].shape[1])), *others), []
    for read, *token in zip(q, *sequences, strict=True):
        _, *states = rule(*states, *token, **numbers)
        o.append(states[0].T @ read)
    return np.stack(o)


def follow(system, steps, rule, *others):
    """A rule whose iterate t learns from the first t supports; a token is read before its write."""
    S, fields = np.zeros((system.x.shape[1], system.y.shape[1])), []
    for t in range(steps + 1):
        states, alphas, along = (S, *others), [], []
        for i, (k, v) in enumerate(zip(system.x, system.y, strict=True)):
            along.append(states[0].T @ k)
            alpha, *states = rule(states, k, v, 1.0 * (i < t))
            alphas.append(alpha * (i < t))
        fields.append((np.stack(alphas), np.stack([*along, *system.at @ states[0]])))
    return with_prediction(system, named(("alpha", "along"), fields))


def delta_rule(system, steps, step_size):
    def rule(S, k, v, learns):
        return gated_delta_rule(*S, k, v, step_size * learns)

    return follow(system, steps, rule)


def implicit_delta_rule(system, steps, step_size):
    return follow(system, steps, lambda S, k, v, learns: longhorn(*S, k, v, step_size * learns))


def momentum_delta_rule(system, steps, step_size, momentum, decay):
    def rule(states, k, v, learns):
        return momentum_delta_net(*states, k, v, learns, step_size, momentum, decay)

    return follow(system, steps, rule, np.zeros((system.x.shape[1], system.y.shape[1])))


def preconditioned_delta_rule(system, steps, initial, **numbers):
    def rule(states, k, v, learns):
        return preconditioned(*states, k, v, learns, **numbers)

    return follow(system, steps, rule, np.full(system.x.shape[1], initial))


def kalman_delta_rule(system, steps, process_noise, info_scale=1.0):
    def rule(states, k, v, learns):
        noise = system.ridge if learns else np.inf
        return kalman(*states, k, v, noise, process_noise, info_scale=info_scale)

    return follow(system, steps, rule, np.ones(system.x.shape[1]))


def prefixes(system):
    """The regression of each token in its features: C as Gram matrix, b as y, phi as cross."""
    counts = [*range(len(system.y)), *[len(system.y)] * len(system.at)]
    for i, phi in zip(counts, np.concatenate([system.x, system.at]), strict=True):
        x, y = system.x[:i], system.y[:i]
        yield Regression(x.T @ x, phi[None], x.T @ y, system.ridge)


def in_features(system, paths):
    """The fields of all tokens; the features of an output are side by side."""
    path = {name: np.stack([path[name] for path in paths], axis=1) for name in paths[0]}
    states = [np.swapaxes(path[name], 2, 3) for name in ("alpha", "r", "p")]
    w, r, d = (state.reshape(*state.shape[:2], -1) for state in states)
    return with_prediction(system, {"w": w, "r": r, "d": d, "along": path["prediction"][:, :, 0]})


def prefix_conjugate_gradient(system, steps, preconditioner=None):
    solve = jacobi_conjugate_gradient if preconditioner == "jacobi" else conjugate_gradient
    return in_features(system, [solve(one, steps) for one in prefixes(system)])


def prefix_chebyshev(system, steps, spectrum):
    return in_features(system, [chebyshev(one, steps, spectrum) for one in prefixes(system)])


def prefix_posterior(system, steps):
    """Solve for h = A^-1 phi: the mean is b^T h, and the variance ridge phi^T h."""
    paths, variances = [], []
    for one in prefixes(system):
        phi = one.cross.T
        path = conjugate_gradient(one._replace(cross=one.y.T, y=phi), steps)
        variances.append(system.ridge * np.sum(phi * path["alpha"], axis=(1, 2)))
        paths.append(path | {"prediction": np.swapaxes(path["prediction"], 1, 2)})
    fields = in_features(system, paths)
    return fields | {"h": fields.pop("w"), "variance": np.stack(variances, axis=1)}


def bayesian_average(system, steps, ridges, sharpness=1.0):
    """The evidence sums log N(y_j; mean_j, ridge + variance_j); the weights are its softmax."""
    n, T = len(system.y), len(system.y) + len(system.at)
    paths = [prefix_posterior(system._replace(ridge=ridge), steps - 1) for ridge in ridges]
    means = np.stack([path["along"] for path in paths], axis=2)  # [L, T, G, r]
    variances = np.stack([path["variance"] for path in paths], axis=2) + ridges
    deviations = np.sqrt(variances[:, :n, :, None])
    scores = scipy.stats.norm.logpdf(system.y[:, None], means[:, :n], deviations).sum(axis=3)
    evidence = np.stack([scores[:, : min(i, n)].sum(axis=1) for i in range(T)], axis=1)
    weights = scipy.special.softmax(sharpness * evidence, axis=2)
    fields = {
        "along": np.einsum("ltg,ltgr->ltr", weights, means),
        "means": means.reshape(steps, T, -1),
        "variances": variances,
        "log_evidence": evidence,
        "weights": weights,
    }
    after_none = {name: np.concatenate([0 * path[:1], path]) for name, path in fields.items()}
    return with_prediction(system, after_none)
