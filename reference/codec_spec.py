"""What a quantiser does, as a frozen record whose illegal combinations cannot be built."""

from __future__ import annotations

from dataclasses import dataclass

from dsa_crosscheck.reference.formats import FORMATS, Format

CODEC_CHOICES: dict[str, tuple[object, ...]] = {
    "format": tuple(FORMATS),
    "scale": ("fp32", "power-of-two", "unit", None),
    "amax_floor": (1e-4, 1e-10, 6 * 2.0**-126, None),
    "floor_on": ("amax", "scale", None),
    "scale_from": ("divide", "reciprocal", None),
    "apply": ("reciprocal", "divide", None),
    "ties": ("even", "toward-zero", None),
    "nibbles": ("low-even", "high-even", None),
}
"""Values each field may take. ``None`` means that the field has no effect for the other fields'
values, and is then the only legal value: a field that a stage would ignore cannot be set."""


@dataclass(frozen=True)
class Codec:
    """How one operand is quantised and packed.

    - ``format``: a name in ``FORMATS``.
    - ``scale``: ``fp32`` (amax / max_value in float32), ``power-of-two`` (that, rounded up to a
      power of two by exponent bits) or ``unit`` (no scale: clamp and cast). None without a scale.
    - ``amax_floor``, ``floor_on``: the floor that keeps an all-zero group finite, applied to the
      largest magnitude (``amax``) or to the quotient (``scale``).
    - ``scale_from``: the quotient as ``amax / max`` or as ``amax * fl32(1 / max)``. None for powers
      of two: for the largest values 6, 240 and 448 both quotients round up to the same power.
    - ``apply``: element times ``fl32(1 / scale)`` or element divided by scale. None for powers of
      two, where the two are the same number.
    - ``ties``: exact midpoints to the even code, or toward zero (fp4 only). Toward-zero encoders
      also never emit negative zero (strict threshold count with the sign of a non-zero code).
    - ``nibbles``: whether the even dim is the low or the high half of a byte (fp4 only).

    Raises ``ValueError`` naming the field, the values it may take and the one that came.
    """

    format: str
    scale: str | None = None
    amax_floor: float | None = None
    floor_on: str | None = None
    scale_from: str | None = None
    apply: str | None = None
    ties: str | None = None
    nibbles: str | None = None

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise ValueError(f"`Codec(format=...)` should be one of {tuple(FORMATS)}, got {self.format!r}")
        scales = legal_scales(self.format)
        if self.scale not in scales:
            raise ValueError(f"`Codec(scale=...)` should be one of {scales} for {self.format}, got {self.scale!r}")
        for name, legal in legal_fields(self.format, self.scale).items():
            value = getattr(self, name)
            if name == "amax_floor" and legal != (None,):
                if not isinstance(value, float) or not 0.0 < value < 1.0:
                    raise ValueError(f"`Codec(amax_floor=...)` should be a float between 0 and 1, got {value!r}")
            elif value not in legal:
                raise ValueError(
                    f"`Codec({name}=...)` should be one of {legal} for format={self.format!r}, "
                    f"scale={self.scale!r}; got {value!r}"
                )

    def with_field(self, field: str, value: object) -> Codec:
        """A copy with one field changed.

        Fields that stop or start to apply because of it take their only or first legal value.
        Raises ``ValueError`` when ``value`` itself is not legal there.
        """
        if field not in CODEC_CHOICES:
            raise ValueError(f"`field` should be one of {tuple(CODEC_CHOICES)}, got {field!r}")
        if field == "format" and value not in FORMATS:
            raise ValueError(f"`Codec(format=...)` should be one of {tuple(FORMATS)}, got {value!r}")
        values = {name: getattr(self, name) for name in CODEC_CHOICES} | {field: value}
        if field == "format" and values["scale"] not in legal_scales(str(value)):
            values["scale"] = legal_scales(str(value))[0]
        for name, legal in legal_fields(str(values["format"]), values["scale"]).items():
            if name != field and (legal == (None,) or values[name] is None):
                values[name] = legal[0]
        return Codec(**values)

    @property
    def spec(self) -> Format:
        """The element format."""
        return FORMATS[self.format]

    @property
    def scale_bytes(self) -> int:
        """Bytes of one stored scale: 4 (float32), 1 (UE8M0, fp4) or 0."""
        if self.scale in (None, "unit"):
            return 0
        return 1 if self.spec.bits == 4 else 4

    def groups(self, head_dim: int) -> int:
        """Scales a vector of ``head_dim`` elements carries."""
        return head_dim // min(self.spec.group, head_dim) if self.scale_bytes else 0

    def value_bytes(self, head_dim: int) -> int:
        """Bytes of the values of one vector."""
        return head_dim * self.spec.bits // 8

    def record_bytes(self, head_dim: int) -> int:
        """Bytes of one vector with its scales: 132 for fp8, 68 for fp4, 256 for bf16 at 128 dims."""
        return self.value_bytes(head_dim) + self.groups(head_dim) * self.scale_bytes


def legal_scales(format_name: str) -> tuple[str | None, ...]:
    """Scale kinds that a format may carry."""
    spec = FORMATS[format_name]
    if not spec.group:
        return (None,)
    return ("power-of-two",) if spec.bits == 4 else ("fp32", "power-of-two", "unit")


def legal_fields(format_name: str, scale: object) -> dict[str, tuple[object, ...]]:
    """Legal values of the fields that depend on format and scale kind."""
    four_bit = FORMATS[format_name].bits == 4
    scaled = scale in ("fp32", "power-of-two")
    applies = {
        "amax_floor": scaled,
        "floor_on": scaled,
        "scale_from": scale == "fp32",
        "apply": scale == "fp32",
        "ties": four_bit,
        "nibbles": four_bit,
    }
    return {
        name: tuple(c for c in CODEC_CHOICES[name] if c is not None) if yes else (None,)
        for name, yes in applies.items()
    }
