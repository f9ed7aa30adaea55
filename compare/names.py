"""Options that take several names."""

from __future__ import annotations


def names_of(option: str, text: str) -> list[str]:
    """The names of ``text``, which commas separate; ``ValueError`` for none, or for one that comes twice."""
    names = [name for name in text.split(",") if name]
    if not names or len(set(names)) != len(names):
        raise ValueError(f"`{option}` should name something, with commas and once each, got {text!r}")
    return names
