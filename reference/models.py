"""Accumulator models: what a correct kernel may do with a sum, as rows of data.

A bound is derived from a model and the inputs, never written as a literal tolerance. Notation as in
N. J. Higham, Accuracy and Stability of Numerical Algorithms (2nd ed., 2002), chapter 3: unit roundoff
u and gamma_n = n u / (1 - n u). By lemma 3.1 a product of n factors (1 + d)^(+-1), |d| <= u, is
1 + t with |t| <= gamma_n; a sum of n numbers in any order multiplies each by at most n - 1 such
factors, along a balanced tree by log2 n.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log2

FP32_UNIT = 2.0**-24
BF16_UNIT = 2.0**-8
FP16_UNIT = 2.0**-11
FP32_TINY = 2.0**-126
"""Below this magnitude float32 arithmetic may lose everything (flush to zero)."""


@dataclass(frozen=True)
class DotError:
    """Error of a dot product: ``norms`` |q|_2 |k|_2 + ``peaks`` |q|_max |k|_max + ``value`` |q . k|."""

    norms: float
    peaks: float
    value: float


@dataclass(frozen=True)
class AccumulatorModel:
    """A class of admissible kernels.

    - ``unit``: unit roundoff of the working arithmetic.
    - ``tree``: sums are balanced trees (depth log2 n); otherwise any order at all.
    - ``accumulator_bits``: significant bits that a matrix unit keeps when it aligns products to the
      largest addend, None where additions are ordinary floating point; ``accumulate``: products an
      instruction adds at once.
    - ``product_unit``, ``weighted_unit``: rounding of each head's product, and of it times its
      weight, to a narrower type (0 = kept in the working arithmetic).
    - ``score_unit``, ``score_tiny``: rounding of the stored score, relative and absolute.
    """

    name: str
    what: str
    unit: float = FP32_UNIT
    tree: bool = False
    accumulator_bits: int | None = None
    accumulate: int = 32
    product_unit: float = 0.0
    weighted_unit: float = 0.0
    score_unit: float = 0.0
    score_tiny: float = 0.0

    def roundings(self, terms: int) -> int:
        """Roundings that an addend of a sum of ``terms`` may meet."""
        if terms <= 1:
            return 0
        return ceil(log2(terms)) if self.tree else terms - 1

    def gamma(self, n: float) -> float:
        """gamma_n of the working arithmetic."""
        return n * self.unit / (1.0 - n * self.unit)

    def dot_error(self, terms: int) -> DotError:
        """Error of a dot product q . k of ``terms`` elements.

        Three roundings an element are allowed before the sum: each operand times its scale, and the
        product. With those of the sum, |error| <= gamma_(roundings + 3) sum |q_d k_d| (Higham, equation
        3.7 and problem 3.1), and sum |q_d k_d| <= N = |q|_2 |k|_2.

        A matrix unit forms the products exactly. Each instruction takes ``accumulate`` of them, in any
        grouping, and the running sum R, and cuts every addend to a multiple of 2^(1 - bits) times a
        power of two that is at most the largest of them: by less than c max(R, P), c = 2^(1 - bits), P
        the largest product. A first instruction has no running sum: m c P for its m products. The
        others have terms - m products and a running sum each, and every chain of instructions ends in
        one more cut. P <= |q|_max |k|_max. R, and P too, is a sum of some of the products, so at most
        the sum of the positive or that of the negative ones:

            max(R, P) <= X = (sum |q_d k_d| + |q . k|) / 2 <= (N + |q . k|) / 2,

        plus the cuts made before. With n = terms - m + ceil(terms / m) the error is at most
        c (m P + n X) / (1 - c n), whatever the direction of the cuts. It grows as m falls, since
        P <= X: a unit that takes more products at once is covered. So is one that also rounds the sum of
        an instruction to that many bits in the direction of its cuts, since two cuts to multiples of
        powers of two are one cut to the larger. Source of the unit: M. Fasi, N. J. Higham, M. Mikaitis,
        S. Pranesh, Numerical behavior of NVIDIA tensor cores, PeerJ Computer Science 7:e330, 2021.

        Ordinary float32 sums do not cover such a unit, even with 24 bits: a rounding to nearest is off by
        half a last bit of one sum, a cut by a whole one of the largest addend, for every addend. They do
        when it keeps at least 26 bits while it adds, takes m >= 8 products and returns float32. With
        t = terms / m instructions the cuts are then at most (terms + t) 2^-25 X and those of the results
        t 2^-23 X: for 128 terms at most (64 + t / 2 + 2 t) u X <= 104 u N, below gamma_130 N.

        ``ValueError`` when the accumulator is too narrow for a bound: c n >= 1.
        """
        ordinary = self.gamma(self.roundings(terms) + 3)
        if self.accumulator_bits is None:
            return DotError(ordinary, 0.0, 0.0)
        cut = 2.0 ** (1 - self.accumulator_bits)
        first = min(terms, self.accumulate)
        later = terms - first + ceil(terms / self.accumulate)
        if cut * later >= 1.0:
            raise ValueError(
                f"`AccumulatorModel(accumulator_bits=...)` should be at least {later.bit_length() + 1} "
                f"for {terms} terms, got {self.accumulator_bits}"
            )
        cut /= 1.0 - cut * later
        return DotError(ordinary + cut * later / 2, cut * first, cut * later / 2)


_ROWS = (
    AccumulatorModel("ieee-fp32", "float32 with any summation order, fused multiply-add or not"),
    AccumulatorModel("fp32-tree", "float32 summed by balanced trees", tree=True),
    AccumulatorModel(
        "fp16-scores",
        "as ieee-fp32, the score stored as fp16",
        score_unit=FP16_UNIT,
        score_tiny=2.0**-25,
    ),
    AccumulatorModel(
        "bf16-scores",
        "as ieee-fp32, the score stored as bf16",
        score_unit=BF16_UNIT,
        score_tiny=2.0**-134,
    ),
    AccumulatorModel(
        "bf16-chain",
        "bf16 after the product, after the weight and after the head sum (official V4 scorer)",
        product_unit=BF16_UNIT,
        weighted_unit=BF16_UNIT,
        score_unit=BF16_UNIT,
        score_tiny=2.0**-134,
    ),
    # Measured on an H200 with sums that are exact if kept (`device accumulator`, docs/results/h200-accumulator.json):
    # its fp8 instruction keeps 14 bits and takes 32 products at once; its fp16 and bf16 instruction keeps 26 bits among
    # 16 products and returns float32, which `ieee-fp32` covers. Both cut toward zero.
    AccumulatorModel(
        "tensor-core-fp8",
        "exact fp8 products added in a matrix unit that keeps 14 bits, float32 after it",
        accumulator_bits=14,
    ),
    AccumulatorModel(
        "tensor-core-fp16",
        "exact fp16 or bf16 products added in a matrix unit that keeps 24 bits, four or more at once, float32 after it",
        accumulator_bits=24,
        accumulate=4,
    ),
)

MODELS: dict[str, AccumulatorModel] = {row.name: row for row in _ROWS}
"""Accumulator models by name."""

MODEL_OF_ROUNDING = {"none": "ieee-fp32", "fp16": "fp16-scores", "bf16": "bf16-scores", "bf16-chain": "bf16-chain"}
"""The model that a convention's ``score_rounding`` implies."""


def model(name: str) -> AccumulatorModel:
    """The row called ``name``; ``ValueError`` lists the names otherwise."""
    if name not in MODELS:
        raise ValueError(f"`bound` should be one of {tuple(MODELS)}, got {name!r}")
    return MODELS[name]
