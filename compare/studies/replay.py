"""The command that repeats a study."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable


def replay_command(name: str, options: Callable[[argparse.ArgumentParser], None], args: argparse.Namespace) -> str:
    """``dsa-crosscheck study <name>`` with the options of ``args`` that are not their defaults."""
    parser = argparse.ArgumentParser(add_help=False)
    options(parser)
    words = ["dsa-crosscheck", "study", name]
    for dest, default in vars(parser.parse_args([])).items():
        value = getattr(args, dest)
        if value == default:
            continue
        flag = f"--{dest.replace('_', '-')}"
        if value is True:
            words.append(flag)
        elif isinstance(value, (list, tuple)):
            words += [flag, *(str(one) for one in value)]
        else:
            words += [flag, str(value)]
    return shlex.join(words)
