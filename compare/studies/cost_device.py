"""Study ``cost`` on a GPU: the bench of ``compare.device``, its record as a dataset."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any

import xarray as xr

from dsa_crosscheck.compare.device.bench import run_bench
from dsa_crosscheck.compare.device.contenders import contenders_named
from dsa_crosscheck.compare.device.record import need_gpu, write
from dsa_crosscheck.compare.device.table import render_record
from dsa_crosscheck.compare.device.verdicts import failures
from dsa_crosscheck.compare.files import check_target
from dsa_crosscheck.compare.studies.device_results import CostRecord, cost_dataset, records_in

RECORD = "record"
"""Attribute that holds the whole record as JSON."""


def run_on_gpu(args: argparse.Namespace, names: Sequence[str]) -> xr.Dataset:
    """Time ``names`` on this GPU; written to ``--record`` after each case, and ``failures`` says what of ours is wrong.

    ``ValueError`` for an unknown name, no GPU, a report, or a ``--record`` that can't be written.
    """
    contenders = contenders_named(names)
    if args.page or (args.out is not None and args.out.suffix != ".nc"):
        raise ValueError("a report should be of candidates timed on a CPU; a GPU's figures are written by `--record`")
    check_target("--record", args.record)
    need_gpu(f"`--candidate` {','.join(names)}")

    def keep(record: dict[str, Any]) -> None:
        if args.record is not None:
            write(args.record, record)

    return dataset_of(run_bench(contenders, args.commit or "", keep=keep))


def dataset_of(record: dict[str, Any]) -> xr.Dataset:
    """The ``cost`` entries as variables over ``record``, named as those that study ``cost`` reads from files.

    ``undecided`` is 1 if nobody could be timed.
    """
    dataset = cost_dataset(records_in(RECORD, record, "cost", CostRecord))
    told = {RECORD: json.dumps(record), "failures": "\n".join(failures(record)), "undecided": int(not record["cost"])}
    return dataset.assign_attrs(told)


def render(dataset: xr.Dataset) -> str:
    """The record as tables, and what of ours is wrong."""
    wrong = [f"WRONG: {line}" for line in dataset.attrs["failures"].splitlines()]
    return "\n".join([render_record(json.loads(dataset.attrs[RECORD])), *wrong])
