"""What a flipped field means, in words a kernel's author would use."""

from __future__ import annotations

MEANING: dict[str, str] = {
    "norm": "the other norm is applied",
    "norm_eps": "the norm has another epsilon",
    "rope_pairing": "RoPE pairs other dimensions",
    "rope_dims": "RoPE turns the other end of the head",
    "rope_position": "a key's RoPE position is another token of its group",
    "hadamard_key": "the Hadamard transform differs on keys: key and query are then in different bases",
    "hadamard_query": "the Hadamard transform differs on queries: key and query are then in different bases",
    "hadamard_order": "the Hadamard transform has its rows in another order",
    "hadamard_scale": "the Hadamard transform is normalised otherwise",
    "lane_order_key": "elements of a stored key stand in another order",
    "lane_order_query": "elements of a query stand in another order",
    "bf16_points": "bfloat16 rounding happens at other points",
    "query_scale_in": "the query's scale travels elsewhere",
    "weight_dtype": "head weights have another precision",
    "weight_scale": "the constant factor of the head weights differs",
    "relu": "the clamp at zero before the head sum differs",
    "score_rounding": "scores are stored in another precision",
    "causal": "a query sees another number of keys",
    "topk_ties": "ties go to the other end",
    "topk_order": "selected keys come in another order",
    "topk_padding": "short rows are padded otherwise",
    "topk_nan": "NaN ranks elsewhere",
    "page_order": "bytes of a page are laid out otherwise",
    "format": "another number format",
    "scale": "scales of another kind",
    "amax_floor": "another floor under the largest magnitude",
    "floor_on": "the floor acts on the other quantity",
    "scale_from": "the scale comes from the other operation",
    "apply": "the scale is applied by the other operation",
    "ties": "midpoints round otherwise",
    "nibbles": "the two halves of a byte are swapped",
}
"""Field (without its operand) to a clause."""


def clause(path: str) -> str:
    """What a flip of ``path`` means, with its operand."""
    operand, _, field = path.rpartition(".")
    return MEANING[field] + (f" on the {operand}" if operand else "")


def shown(value: object) -> str:
    """A field's value as text; sets sorted."""
    if isinstance(value, frozenset):
        return "{" + ", ".join(sorted(value)) + "}"
    return str(value)
