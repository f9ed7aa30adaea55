"""From the place of every element to a sentence: which layout, page, token or order was used."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dsa_crosscheck.compare.diagnosis.permutations import permutation_name
from dsa_crosscheck.reference.codec_spec import Codec
from dsa_crosscheck.reference.layout import PAGE_ORDERS, PageLayout

EXAMPLES = 3


@dataclass(frozen=True)
class Places:
    """Where the elements of some keys were found.

    ``observed`` int64 [tokens, units]: page * units of a page + unit in the page, -1 where unknown. A
    unit is a byte, or a nibble (low half first) for a 4-bit format; a key's units come in the order of
    its elements, low byte first. ``slots`` int64 [tokens]: where each key should be.
    """

    observed: np.ndarray
    slots: np.ndarray
    layout: PageLayout
    codec: Codec

    @property
    def per_byte(self) -> int:
        """Units of a byte."""
        return 2 if self.codec.spec.bits == 4 else 1

    def expected(self, order: str, nibbles: str | None = None) -> np.ndarray:
        """Places [tokens, units] under a page order (and nibble order, the codec's own by default)."""
        layout = replace(self.layout, page_order=order)
        page, offset = np.divmod(self.slots, layout.page_size)
        byte = page[:, None] * layout.page_bytes + layout.addresses[offset, : layout.value_bytes]
        if self.per_byte == 1:
            return byte
        low_first = (nibbles or self.codec.nibbles) == "low-even"
        halves = np.array([0, 1] if low_first else [1, 0])
        return (byte[:, :, None] * 2 + halves).reshape(byte.shape[0], -1)

    def nibble_orders(self) -> tuple[str | None, ...]:
        """Nibble orders, the declared one first; only None where a unit is a byte."""
        if self.per_byte == 1:
            return (None,)
        return ("low-even", "high-even") if self.codec.nibbles == "low-even" else ("high-even", "low-even")

    def orders(self) -> list[str]:
        """Page orders that pages of this size can have, the declared one first."""
        legal = [self.layout.page_order]
        for order in PAGE_ORDERS:
            try:
                replace(self.layout, page_order=order)
            except ValueError:
                continue  # pages without whole tiles
            if order not in legal:
                legal.append(order)
        return legal


def describe(places: Places, verb: str) -> str:
    """A sentence on how ``places`` differ from the declared ones; empty when they don't.

    ``verb``: ``read from`` or ``written to``. The simplest description that fits every known place: a
    page or nibble order, then beside it an order of elements, whole pages or tokens exchanged; else
    examples.
    """
    known = places.observed >= 0
    if not known.any() or np.array_equal(places.observed[known], places.expected(places.layout.page_order)[known]):
        return ""
    arrangements = [
        (_layout_phrase(places, order, nibbles), places.expected(order, nibbles))
        for order in places.orders()
        for nibbles in places.nibble_orders()
    ]
    for layout, expected in arrangements:
        if np.array_equal(places.observed[known], expected[known]):
            return f"values are {verb.split()[0]} {layout}{_example(places, verb)}"
    for layout, expected in arrangements:
        how = _exchange(places, expected)
        if how is not None:
            parts = ", ".join(part for part in (layout, how) if part)
            return f"values are {verb.split()[0]} {parts}{_example(places, verb)}"
    return f"values are {verb} other places{_examples(places, verb)}"


def _layout_phrase(places: Places, order: str, nibbles: str | None) -> str:
    parts = []
    if order != places.layout.page_order:
        parts.append(f"in {order} order, not {places.layout.page_order}")
    if nibbles != places.codec.nibbles:
        half = "low" if nibbles == "low-even" else "high"
        parts.append(f"with even elements in the {half} nibble")
    return ", ".join(parts)


def _exchange(places: Places, expected: np.ndarray) -> str | None:
    """The one simple exchange by which ``observed`` follows from ``expected``."""
    observed, known = places.observed, places.observed >= 0
    token, unit = _sources(observed, expected)
    if (token[known] < 0).any():
        return _pages_moved(places, expected)
    tokens, units = np.indices(observed.shape)
    same_token, same_unit = (token == tokens)[known].all(), (unit == units)[known].all()
    if same_token:
        order = _common(unit, known)
        return None if order is None else _element_order(places, order)
    if same_unit:
        return _pages_moved(places, expected) or _tokens_moved(places, token, known)
    return None


def _common(unit: np.ndarray, known: np.ndarray) -> np.ndarray | None:
    """The one row that all tokens share where they are known; None if they don't, or it has gaps."""
    row = np.where(known, unit, -1).max(axis=0)
    return row if (row >= 0).all() and (unit == row)[known].all() else None


def _sources(observed: np.ndarray, expected: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each observed place, whose it should be: (token, unit), -1 where it is nobody's."""
    flat = expected.reshape(-1)
    order = np.argsort(flat)
    at = np.minimum(np.searchsorted(flat[order], observed), flat.size - 1)
    owner = np.where(flat[order][at] == observed, order[at], -1)
    token, unit = np.divmod(owner, expected.shape[1])
    return np.where(owner < 0, -1, token), np.where(owner < 0, -1, unit)


def _element_order(places: Places, unit: np.ndarray) -> str | None:
    """One order of elements for every token; bytes of an element must stay together."""
    width = max(1, places.codec.spec.bits // 8)
    whole = unit.reshape(-1, width)
    if (whole[:, :1] % width).any() or (whole != whole[:, :1] + np.arange(width)).any():
        return None
    elements = whole[:, 0] // width
    if np.unique(elements).size != elements.size:
        return None
    # Element e lies at place elements[e]: the stored vector is the inverse.
    return f"with the elements of a vector in another order: {permutation_name(np.argsort(elements))}"


def _pages_moved(places: Places, expected: np.ndarray) -> str | None:
    """Every page replaced by one other, its bytes in place."""
    known = places.observed >= 0
    units = places.layout.page_bytes * places.per_byte
    got, meant = places.observed[known], expected[known]
    if (got % units != meant % units).any():
        return None
    moves = np.unique(np.stack([meant // units, got // units]), axis=1).T
    if np.unique(moves[:, 0]).size != moves.shape[0]:
        return None
    text = ", ".join(f"page {b} for page {a}" for a, b in moves.tolist() if a != b)
    return f"on other pages: {text}"


def _tokens_moved(places: Places, token: np.ndarray, known: np.ndarray) -> str | None:
    """Every token replaced by one other, its elements in place."""
    source = np.where(known, token, -1).max(axis=1)
    if (known & (token != source[:, None])).any():
        return None
    steps = np.unique((source - np.arange(source.size))[known.any(axis=1)])
    if steps.size == 1:
        return f"at the token {steps[0]:+d} from theirs"
    moved = [(t, s) for t, s in enumerate(source.tolist()) if s not in (-1, t)]
    return "at other tokens: " + ", ".join(f"token {s} for token {t}" for t, s in moved[:EXAMPLES])


def _example(places: Places, verb: str) -> str:
    """The bytes of one whole moved record, where they are contiguous; else moved elements."""
    moved = (places.observed != places.expected(places.layout.page_order)) & (places.observed >= 0)
    token = int(np.argmax(moved.sum(axis=1)))
    bytes_of = np.unique(places.observed[token] // places.per_byte)
    if places.observed[token].min() < 0 or bytes_of[-1] - bytes_of[0] + 1 != bytes_of.size:
        return _examples(places, verb)
    page, first = divmod(int(bytes_of[0]), places.layout.page_bytes)
    span = f"bytes {first} to {first + bytes_of.size - 1} of page {page}"
    return f": token {_token(places, token)}'s values were {verb} {span}"


def _examples(places: Places, verb: str) -> str:
    """The first few moved elements, and whose place each was found in."""
    expected = places.expected(places.layout.page_order)
    moved = (places.observed != expected) & (places.observed >= 0)
    token, unit = _sources(places.observed, expected)
    width = max(1, places.codec.spec.bits // 8)
    units = places.layout.page_bytes * places.per_byte
    parts = []
    first_units = np.argwhere(moved.reshape(moved.shape[0], -1, width).any(axis=2))[:EXAMPLES]
    for t, element in first_units.tolist():
        u = element * width + int(np.argmax(moved[t, element * width : (element + 1) * width]))
        page, rest = divmod(int(places.observed[t, u]), units)
        owner = f"byte {rest // places.per_byte} of page {page}, which holds no value of these keys"
        if token[t, u] >= 0:
            owner = f"the place of (token {_token(places, int(token[t, u]))}, dim {unit[t, u] // width})"
        parts.append(f"(token {_token(places, t)}, dim {element}) was {verb} {owner}")
    return ": " + "; ".join(parts)


def _token(places: Places, token: int) -> str:
    page, offset = divmod(int(places.slots[token]), places.layout.page_size)
    return f"{page}:{offset}"
