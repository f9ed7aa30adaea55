"""Method ``run``: a fused implementation, from raw inputs to a selection, judged by what it shows."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import fields, replace
from typing import Any

import numpy as np
import torch

from dsa_crosscheck.compare.call import CandidateFault, Unsupported, expect, raised, same_bytes
from dsa_crosscheck.compare.physical import returned_kind, to_logical
from dsa_crosscheck.compare.setup import Setup
from dsa_crosscheck.compare.stage_result import StageResult
from dsa_crosscheck.compare.stages.keys import judge_keys
from dsa_crosscheck.compare.stages.scores import visible
from dsa_crosscheck.compare.stages.selection import SelectionOutcome, judge_selection
from dsa_crosscheck.compare.stages.values import judge_values
from dsa_crosscheck.compare.verdict import Verdict
from dsa_crosscheck.reference.cache import read_records, write_records

END_TO_END = "end to end"


def run_fused(candidate: Any, setup: Setup) -> dict[str, np.ndarray]:
    """Every tensor that ``run(inputs)`` returns, by name.

    A selection of physical slots is given as logical keys, with ``owner`` [rows, topk] beside it as
    in ``Located``. ``CandidateFault`` when ``run`` raises, exits, returns no selection or one of
    another shape, or changes the inputs.
    """
    given = deepcopy(setup.inputs)
    try:
        out = candidate.run(given)
    except Unsupported:
        raise
    except (Exception, SystemExit) as error:
        raise raised("run", error) from error
    for field in fields(given):
        before, after = getattr(setup.inputs, field.name), getattr(given, field.name)
        if isinstance(before, np.ndarray) and not same_bytes(before, after):
            raise CandidateFault(Verdict.VIOLATION, f"run wrote to `inputs.{field.name}`")
    if not isinstance(out, dict) or not isinstance(out.get("selection"), torch.Tensor):
        raise CandidateFault(Verdict.MALFORMED, "run should return a dict with a torch tensor 'selection'")
    shown = {name: value.detach().cpu().numpy() for name, value in out.items() if isinstance(value, torch.Tensor)}
    shape = (setup.inputs.rows, setup.inputs.geometry.topk)
    selection = expect("run", "selection", shown["selection"], shape, (np.int32, np.int64))
    if returned_kind(candidate) == "physical":
        shown["selection"], shown["owner"] = to_logical(selection, setup)
    return shown


def judge_fused(
    shown: dict[str, np.ndarray], setup: Setup, max_swaps: int
) -> tuple[list[StageResult], SelectionOutcome]:
    """Judge each tensor that a fused candidate showed.

    ``selection`` is required; ``keys`` [keys, head_dim], ``query`` [rows, heads, head_dim] (both as
    the scorer uses them), ``cache`` uint8 [pages, page_bytes] and ``scores`` [rows, n] are judged
    where the candidate shows them. Scores and selection are bounded for codes that nobody saw.
    ``CandidateFault``: a tensor of another shape or dtype; ``REFUSED`` when it is the cache.
    """
    trace, lengths = setup.trace, setup.trace.lengths
    scores, bound = setup.unseen_scores
    results = []
    if "cache" in shown:
        results += _judge_cache(shown["cache"], setup)
    if "keys" in shown:
        got = expect("run", "keys", shown["keys"], trace.keys.rotated.shape, (np.float32, np.float64))
        place = "key {} d{}".format
        judged = judge_values("run: keys", got, trace.keys.rotated, setup.key_bound.rotated, lambda at: place(*at))
        results.append(judged)
    if "query" in shown:
        want = trace.query.rotated
        got = expect("run", "query", shown["query"], want.shape, (np.float32, np.float64))
        place = "row {} head {} d{}".format
        results.append(judge_values("run: query", got, want, setup.query_bound.rotated, lambda at: place(*at)))
    if "scores" in shown:
        width = scores.values.shape[1]
        got = shown["scores"][:, :width]
        expect("run", "scores", got, (lengths.size, width), (np.float32,))
        place, seen = "row {} key {}".format, visible(lengths, width)
        results.append(
            judge_values(
                "run: scores", got, scores.values, bound, lambda at: place(*at), seen, geometry=setup.inputs.geometry
            )
        )
    selection, owner = shown["selection"], shown.get("owner")
    return results, judge_selection(END_TO_END, selection, setup, scores.values, bound, max_swaps, owner)


def _judge_cache(cache: np.ndarray, setup: Setup) -> list[StageResult]:
    """Key scales and codes of a cache that ``run`` filled; what else it held before is not known."""
    want = setup.trace.cache
    if cache.ndim != 2 or cache.dtype != np.uint8 or cache.shape != want.shape:
        raise CandidateFault(
            Verdict.REFUSED,
            f"source and destination differ in the shape of the cache: {want.dtype} {list(want.shape)} vs "
            f"{cache.dtype} {list(cache.shape)}",
        )
    slots = setup.inputs.slots
    before = cache.copy()
    write_records(before, setup.layout, ~read_records(cache, setup.layout, slots[slots >= 0]), slots[slots >= 0])
    return [replace(result, stage=f"run: {result.stage}") for result in judge_keys((before, cache), setup)]
