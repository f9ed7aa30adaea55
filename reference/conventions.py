"""Every numeric choice that differs between real implementations, as one frozen record."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

from dsa_crosscheck.reference.codec_spec import CODEC_CHOICES, Codec

BF16_POINTS = ("pooled", "normed", "key-roped", "key-rotated", "query-roped", "query-rotated")
"""Stage outputs that an implementation may round to bfloat16 before going on."""

CHOICES: dict[str, tuple[object, ...]] = {
    "norm": ("rms", "layer"),
    "norm_eps": (1e-6, 1e-5),
    "rope_pairing": ("interleaved", "half-split"),
    "rope_dims": ("last", "first"),
    "rope_position": ("group-first", "group-last"),
    "hadamard_key": (True, False),
    "hadamard_query": (True, False),
    "hadamard_order": ("natural", "sequency", None),
    "hadamard_scale": ("orthonormal", "none", None),
    "lane_order_key": ("lane-major", "strided", "bit-reversed", "sequency"),
    "lane_order_query": ("lane-major", "strided", "bit-reversed", "sequency"),
    "query_scale_in": ("weights", "record", None),
    "weight_dtype": ("fp32", "bf16"),
    "weight_scale": ("head_dim^-1/2 heads^-1/2", "none"),
    "relu": (True, False),
    "score_rounding": ("none", "fp16", "bf16", "bf16-chain"),
    "causal": ("finished-groups", "own-group"),
    "topk_ties": ("low-index", "high-index"),
    "topk_order": ("any", "index", "score"),
    "topk_padding": ("minus-one", "zero", "int-max", "future"),
    "topk_nan": ("last", "first"),
    "page_order": ("values-then-scales", "token-interleaved", "tiles-16x16"),
}
"""Values each plain field may take; ``key`` and ``query`` are codecs (``CODEC_CHOICES``) and
``bf16_points`` is any subset of ``BF16_POINTS``."""

PADDING_VALUES: dict[str, int | None] = {"minus-one": -1, "zero": 0, "int-max": 2**31 - 1, "future": None}
"""Index written after the last selected key; None = the lowest indices that are not visible."""


@dataclass(frozen=True)
class Conventions:
    """How an indexer computes: one field, one behaviour.

    Geometry (sizes) is separate. A field with no effect under the others' values must be None, so
    that every field of every record changes some stage; ``ValueError`` names the field otherwise.

    - ``norm``, ``norm_eps``: RMSNorm (weight) or LayerNorm (weight and bias) of the pooled key.
    - ``rope_pairing``: pairs (2i, 2i+1) or (i, i + rope_dim/2); ``rope_dims``: which end of the
      head is rotated; ``rope_position``: a key's position is its group's first or last raw token.
    - ``hadamard_*``: 128-point Walsh-Hadamard after RoPE; natural (Sylvester) or sequency order;
      divided by sqrt(head_dim) or not.
    - ``lane_order_*``: order of the elements in a stored vector; ``lane-major`` is the natural one
      (lane l of 32 holds elements V*l .. V*l + V-1).
    - ``key``, ``query``: the codecs.
    - ``bf16_points``: stage outputs rounded to bfloat16.
    - ``query_scale_in``: the query's scale multiplies the head weight, or stays beside its codes.
    - ``weight_dtype``: head weight kept in float32 or rounded to bfloat16 after scaling.
    - ``weight_scale``: gate times head_dim^-1/2 heads^-1/2, or the gate alone.
    - ``relu``: clamp each head's product at zero before weighting.
    - ``score_rounding``: ``bf16-chain`` rounds after the product, the weight and the sum.
    - ``causal``: a query at raw position p sees (p+1)//ratio keys, or p//ratio + 1.
    - ``topk_*``: which of equal scores win, output order (``any`` = unspecified, and the reference
      then writes index order), what fills a short row, and where NaN ranks.
    - ``page_order``: byte order inside a cache page (``layout.PAGE_ORDERS``).
    """

    key: Codec
    query: Codec
    norm: str = "rms"
    norm_eps: float = 1e-6
    rope_pairing: str = "interleaved"
    rope_dims: str = "last"
    rope_position: str = "group-first"
    hadamard_key: bool = True
    hadamard_query: bool = True
    hadamard_order: str | None = "natural"
    hadamard_scale: str | None = "orthonormal"
    lane_order_key: str = "lane-major"
    lane_order_query: str = "lane-major"
    bf16_points: frozenset[str] = frozenset()
    query_scale_in: str | None = "weights"
    weight_dtype: str = "fp32"
    weight_scale: str = "head_dim^-1/2 heads^-1/2"
    relu: bool = True
    score_rounding: str = "none"
    causal: str = "finished-groups"
    topk_ties: str = "low-index"
    topk_order: str = "any"
    topk_padding: str = "minus-one"
    topk_nan: str = "last"
    page_order: str = "values-then-scales"

    def __post_init__(self) -> None:
        for name, choices in CHOICES.items():
            value = getattr(self, name)
            if name == "norm_eps":
                if not isinstance(value, float) or not 0.0 < value < 1.0:
                    raise ValueError(f"`Conventions(norm_eps=...)` should be a float between 0 and 1, got {value!r}")
                continue
            legal = self._legal(name, choices)
            if value not in legal:
                raise ValueError(f"`Conventions({name}=...)` should be one of {legal}, got {value!r}")
        unknown = sorted(set(self.bf16_points) - set(BF16_POINTS))
        if unknown:
            raise ValueError(f"`Conventions(bf16_points=...)` should hold only {BF16_POINTS}, got {unknown}")

    def _legal(self, name: str, choices: tuple[object, ...]) -> tuple[object, ...]:
        applies = True
        if name in ("hadamard_order", "hadamard_scale"):
            applies = self.hadamard_key or self.hadamard_query
        elif name == "query_scale_in":
            applies = self.query.scale_bytes > 0
            if self.query.spec.bits == 4:
                return ("record",)  # a head has several scales, and one weight
        if None not in choices:
            return choices
        return tuple(c for c in choices if c is not None) if applies else (None,)

    def with_field(self, path: str, value: object) -> Conventions:
        """A copy with one field changed; ``path`` is a field name, ``key.<field>`` or ``query.<field>``.

        Dependent fields of a codec whose format or scale changes are set to the first legal choice,
        since no other value exists for them. Raises ``ValueError`` when the path is no field or the
        combination is illegal.
        """
        if path not in _FIELD_PATHS:
            raise ValueError(f"`path` should be one of {_FIELD_PATHS}, got {path!r}")
        if "." in path:
            operand, field = path.split(".", 1)
            codec = getattr(self, operand).with_field(field, value)
            changes: dict[str, object] = {operand: codec}
            if operand == "query":
                place = "record" if codec.spec.bits == 4 else self.query_scale_in or "record"
                changes["query_scale_in"] = place if codec.scale_bytes else None
            return replace(self, **changes)  # type: ignore[arg-type]
        changes = {path: value}
        if path in ("hadamard_key", "hadamard_query"):
            other = "hadamard_query" if path == "hadamard_key" else "hadamard_key"
            if not value and not getattr(self, other):
                changes.update(hadamard_order=None, hadamard_scale=None)
            elif self.hadamard_order is None:
                changes.update(hadamard_order="natural", hadamard_scale="orthonormal")
        return replace(self, **changes)  # type: ignore[arg-type]


_CODEC_PATHS = tuple(f"{operand}.{name}" for operand in ("key", "query") for name in CODEC_CHOICES)
_FIELD_PATHS = (*CHOICES, "bf16_points", *_CODEC_PATHS)


def paths(conventions: Conventions) -> Iterator[str]:
    """Names of every field that applies, codec fields as ``key.<field>`` and ``query.<field>``."""
    for field in fields(conventions):
        value = getattr(conventions, field.name)
        if isinstance(value, Codec):
            for inner in fields(value):
                if getattr(value, inner.name) is not None:
                    yield f"{field.name}.{inner.name}"
        elif value is not None:
            yield field.name


def get_field(conventions: Conventions, path: str) -> object:
    """Value at ``path`` as named by ``paths``."""
    value: object = conventions
    for part in path.split("."):
        value = getattr(value, part)
    return value


def flips(conventions: Conventions) -> Iterator[tuple[str, object, Conventions]]:
    """Every legal record that differs in one field: (path, new value, record).

    Used three times: to prove that each field acts, to diagnose a mismatch, and to make mutants.
    """
    for path in paths(conventions):
        now = get_field(conventions, path)
        for value in _alternatives(path, now):
            try:
                flipped = conventions.with_field(path, value)
            except ValueError:
                continue
            yield path, value, flipped


def _alternatives(path: str, now: object) -> Iterator[object]:
    if path == "bf16_points":
        assert isinstance(now, frozenset)
        for point in BF16_POINTS:
            yield now ^ {point}
        return
    operand, _, field = path.rpartition(".")
    choices = CODEC_CHOICES[field] if operand else CHOICES[field]
    yield from (choice for choice in choices if choice is not None and choice != now)
