"""The matrices that a solver can multiply by."""

from typing import Any, NoReturn

from ..._core import checks
from ...kernels import Kernel
from .values import ENTRIES, FEATURES, OPEN, VECTOR, Recording, Value, refuse


class _Matrix:
    """A matrix that multiplies a vector from the left; its columns are the supports."""

    def __init__(self, recording: Recording, kind: str, *args: Value, constant: Any = None):
        self.recording, self.kind, self.args = recording, kind, args
        self.constants = () if constant is None else (recording.constant(constant),)

    def __matmul__(self, v: Any) -> Value:
        shape = getattr(v, "shape", type(v).__name__)
        inner = self.kind == "inner"
        shapes = (VECTOR, OPEN, FEATURES) if inner else (VECTOR, OPEN)
        if not isinstance(v, Value) or shape not in shapes:
            refuse(f"a matrix multiplies a vector, got a {shape}")
        shape = shape if inner else VECTOR
        return self.recording.value(self.kind, shape, *self.args, v, constants=self.constants)

    def unknown(self, *_: Any) -> NoReturn:
        refuse("a matrix only multiplies vectors: write c * (K @ v) and K @ v + c * v")

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        refuse(f"a matrix of a solver has no {name!r}")

    __array_ufunc__ = None  # a number of NumPy times a matrix then calls __rmul__
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = unknown
    __neg__ = __pow__ = __getitem__ = __rmatmul__ = unknown


class _Normalised(_Matrix):
    r"""The matrix $(D + cI)^{-1} K$ with the row sums D of K, as a softmax head with a sink has it.

    Attributes:
        sink: the entries c / (D + c) of every token, the weights of the sink.
        normaliser: the entries (D + c) / c.
    """

    def __init__(self, recording: Recording, c: Any):
        super().__init__(recording, "smooth", constant=c)

    @property
    def sink(self) -> Value:
        return self.recording.value("sink", ENTRIES, constants=self.constants)

    @property
    def normaliser(self) -> Value:
        return self.recording.value("normaliser", ENTRIES, constants=self.constants)


class Operator(_Matrix):
    r"""The kernel matrix K of a solver: `K @ v` has $k(x_i)^T v$ at every support and query.

    Attributes:
        kernel: the kernel.
        sketched: whether a construction replaces the kernel by its sketch.
        diagonal: the entries k(x, x).
        features: features phi(x) of every token, for kernels that have a feature map.
    """

    def __init__(self, recording: Recording, kernel: Kernel, sketched: bool):
        super().__init__(recording, "kernel")
        self.kernel, self.sketched = kernel, sketched

    @property
    def diagonal(self) -> Value:
        return self.recording.value("diagonal", ENTRIES)

    @property
    def features(self) -> Value:
        return self.recording.value("features", FEATURES)

    def normalised(self, c: Any) -> _Normalised:
        """Return the operator (D + c)^-1 K of a softmax head with a sink of weight c > 0."""
        checks.positive_scalar("c", c)
        return _Normalised(self.recording, c)

    @property
    def average(self) -> _Matrix:
        """D^-1 K, a softmax head without a sink."""
        return _Matrix(self.recording, "average")

    def nystrom(self, preconditioner: Any) -> _Matrix:
        """Return F C F^T for the features F and the matrix C of an `icl_krr.Nystrom`."""
        return _Matrix(self.recording, "nystrom", constant=preconditioner)

    def inner(self, a: Value, b: Value) -> _Matrix:
        """Return the matrix of the inner products <a_i, b_j> of features of the tokens."""
        return _Matrix(self.recording, "inner", a, b)
