"""Calling a candidate: numpy in, numpy out, and whatever goes wrong becomes a judgement of it."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dsa_crosscheck.compare.verdict import Verdict


class CandidateFault(Exception):
    """The candidate raised, returned something else than its contract, or wrote to an input."""

    def __init__(self, verdict: Verdict, message: str) -> None:
        super().__init__(message)
        self.verdict = verdict


class Unsupported(ValueError):
    """A candidate cannot run this combination at all: a usage error, not a fault."""


def call(
    candidate: Any, stage: str, *args: np.ndarray | torch.Tensor | int, writes: int | None = None, results: int = 1
) -> tuple[np.ndarray, ...]:
    """Call ``candidate.<stage>`` with torch tensors on its device; its tensors as numpy arrays.

    A numpy array is given as a copy; a tensor as it is, so that the caller can see what became of it
    and of the memory around it. ``writes``: position of the one argument that the stage fills in
    place, and which is then what is returned; ``results``: how many tensors it should return otherwise.
    Narrow floats come as float32. Raises ``CandidateFault`` when the call raises or exits (except
    ``Unsupported``), returns another number of results or one that is not a tensor that numpy can
    hold, or changes any other argument.
    """
    device = getattr(candidate, "device", "cpu")
    tensors = [torch.from_numpy(a.copy()).to(device) if isinstance(a, np.ndarray) else a for a in args]
    try:
        out = getattr(candidate, stage)(*tensors)
    except Unsupported:
        raise
    # A candidate that exits would otherwise choose the exit code of the comparison.
    except (Exception, SystemExit) as error:
        raise raised(stage, error) from error
    for place, (before, after) in enumerate(zip(args, tensors, strict=True)):
        if place == writes or not isinstance(before, np.ndarray):
            continue
        if not same_bytes(_numpy(after), before):
            raise CandidateFault(Verdict.VIOLATION, f"{stage} wrote to its argument {place + 1}, an input")
    if writes is not None:
        return (_numpy(tensors[writes]),)
    made = out if isinstance(out, tuple) else (out,)
    for result in made:
        if not isinstance(result, torch.Tensor):
            raise CandidateFault(Verdict.MALFORMED, f"{stage} should return torch tensors, got {type(result).__name__}")
    if len(made) != results:
        wanted = "one tensor" if results == 1 else f"a tuple of {results} tensors"
        raise CandidateFault(Verdict.MALFORMED, f"{stage} should return {wanted}, got {len(made)}")
    try:
        return tuple(_numpy(result) for result in made)
    except (TypeError, RuntimeError) as error:
        kinds = ", ".join(f"{result.dtype} on {result.device}" for result in made)
        raise CandidateFault(
            Verdict.MALFORMED, f"{stage} returned {kinds}, which numpy cannot hold: {error}"
        ) from error


def raised(method: str, error: BaseException) -> CandidateFault:
    """The fault of a method that raised ``error``: its text, and the line of Python it came from."""
    # The first frame is the caller here, not the candidate.
    frames = traceback.extract_tb(error.__traceback__)[1:]
    at = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return CandidateFault(Verdict.MALFORMED, f"{method} raised {type(error).__name__}: {error}{at}")


def expect(stage: str, name: str, array: np.ndarray, shape: tuple[int, ...], dtypes: tuple[type, ...]) -> np.ndarray:
    """``array`` if it has the shape and one of the dtypes; ``CandidateFault`` with both otherwise."""
    if array.shape != shape or array.dtype not in [np.dtype(d) for d in dtypes]:
        names = " or ".join(np.dtype(d).name for d in dtypes)
        raise CandidateFault(
            Verdict.MALFORMED,
            f"{stage} should return {name} as {names} {list(shape)}, got {array.dtype} {list(array.shape)}",
        )
    return array


def same_bytes(first: np.ndarray, second: np.ndarray) -> bool:
    """Whether two arrays of one dtype hold the same bytes: a NaN equals itself, the two zeros differ."""
    left, right = (np.ascontiguousarray(a).reshape(-1).view(np.uint8) for a in (first, second))
    return np.array_equal(left, right)


def _numpy(tensor: Any) -> np.ndarray:
    tensor = tensor.detach().cpu()
    if tensor.dtype in (torch.bfloat16, torch.float16):
        tensor = tensor.float()
    return np.ascontiguousarray(tensor.numpy())
