"""Result files: where they can be written, and writing all of a file or none of it."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def check_target(option: str, path: Path | None) -> None:
    """``ValueError`` naming ``option`` unless ``path``, if one is given, can be a file of an existing folder.

    For before the work: what can't be written in the end is refused while nothing is lost.
    """
    if path is not None and (path.is_dir() or not path.parent.is_dir()):
        raise ValueError(f"`{option}` should be the path of a file in an existing folder, got {path}")


def write_text(path: Path, text: str) -> None:
    """Write ``text`` (UTF-8) so that ``path`` holds either its old content or the whole new one."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        with draft.open("x", encoding="utf-8") as file:
            file.write(text)
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)
