"""``dsa-crosscheck fixtures``: golden fixtures made, verified, compared, shown and exported."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dsa_crosscheck.fixtures.golden.recipe import Recipe


def add(commands: argparse._SubParsersAction[Any]) -> None:
    """Declare the command and what it can do."""
    parser = commands.add_parser("fixtures", help="golden fixtures: make, verify, diff, show, export, coverage")
    actions = parser.add_subparsers(title="actions", required=True, metavar="ACTION")
    _add_make(actions)
    verify = actions.add_parser("verify", help="check fixtures against their manifest, and compute them again")
    verify.add_argument("paths", nargs="*", type=Path, metavar="PATH", help="files (default: all of the folder)")
    verify.add_argument("--folder", type=Path, help="folder with a manifest (default: the committed fixtures)")
    verify.set_defaults(run=run_verify)
    diff = actions.add_parser("diff", help="first difference of every array of two fixtures")
    diff.add_argument("expected", help="path, or name of a committed fixture")
    diff.add_argument("got", help="path, or name of a committed fixture")
    diff.set_defaults(run=run_diff)
    show = actions.add_parser("show", help="what a fixture holds; without a name, all committed ones")
    show.add_argument("fixture", nargs="?", help="path, or name of a committed fixture")
    show.set_defaults(run=run_show)
    export = actions.add_parser("export", help="write a fixture in a form that other languages read")
    export.add_argument("fixture", help="path, or name of a committed fixture")
    form = export.add_mutually_exclusive_group(required=True)
    form.add_argument("--safetensors", type=Path, metavar="PATH", help="one safetensors file")
    form.add_argument("--raw", type=Path, metavar="FOLDER", help="a new folder of little-endian binaries and JSON")
    export.set_defaults(run=run_export)
    coverage = actions.add_parser("coverage", help="which fault families each committed fixture sees, as Markdown")
    coverage.add_argument("--out", type=Path, metavar="PATH", help="replace the table between the marks of this page")
    coverage.set_defaults(run=run_coverage)


def _add_make(actions: argparse._SubParsersAction[Any]) -> None:
    make = actions.add_parser("make", help="make fixtures; goes on where a stopped run ended")
    make.add_argument("names", nargs="*", metavar="NAME", help="committed recipes (default: all)")
    make.add_argument("--folder", type=Path, help="where to (default: the committed fixtures)")
    make.add_argument("--regenerate", action="store_true", help="replace fixtures that are there and differ")
    make.add_argument("--candidate", help="also keep the outputs of this candidate, if it is repeatable and right")
    make.add_argument("--large", action="store_true", help="the full-size set instead, into the cache")
    make.set_defaults(run=run_make)


def run_make(args: argparse.Namespace) -> int:
    """Make the named fixtures; exit code 2 for a file that is in the way or a candidate that is refused."""
    from dsa_crosscheck.compare.golden.batch import make_set
    from dsa_crosscheck.compare.golden.make import make_golden
    from dsa_crosscheck.fixtures.golden.packaged import packaged_folder

    if args.large:
        return _make_large(args)
    recipes = _recipes(args.names)
    if args.candidate and not args.folder:
        raise ValueError("`--folder` is needed with `--candidate`: the committed fixtures hold no candidate's outputs")
    maker = make_golden
    if args.candidate:
        from dsa_crosscheck.compare.golden.from_candidate import make_candidate_golden

        def maker(recipe: Recipe) -> Any:
            return make_candidate_golden(recipe, args.candidate)

    folder = args.folder or packaged_folder()
    outcome = make_set(recipes, folder, regenerate=args.regenerate, progress=_progress, maker=maker)
    for name, what in outcome.items():
        print(f"{name}: {what}")
    return 0


def _make_large(args: argparse.Namespace) -> int:
    from dsa_crosscheck.compare.golden.large import large_folder, make_large
    from dsa_crosscheck.fixtures.golden.catalogue import LARGE_RECIPES

    if args.candidate or args.regenerate:
        raise ValueError(
            "`--large` should be given without `--candidate` and `--regenerate`: its cache is never rewritten"
        )
    known = {recipe.name: recipe for recipe in LARGE_RECIPES}
    unknown = [name for name in args.names if name not in known]
    if unknown:
        raise ValueError(f"`NAME` should be one of {', '.join(known)} with `--large`, got {unknown[0]!r}")
    recipes = [known[name] for name in args.names or known]
    for name, path in make_large(recipes, args.folder or large_folder(), _progress).items():
        print(f"{name}: {path}")
    return 0


def run_verify(args: argparse.Namespace) -> int:
    """Exit code 0 when every fixture is as it should be, 1 when one is not."""
    from dsa_crosscheck.compare.golden.verify import verify_fixture
    from dsa_crosscheck.fixtures.golden.manifest import MANIFEST, SUFFIX, read_manifest
    from dsa_crosscheck.fixtures.golden.packaged import packaged_folder

    folder = args.folder or (None if args.paths else packaged_folder())
    if folder is None:
        pairs = [(path, _entries_beside(path).get(path.stem)) for path in args.paths]
    else:
        entries = read_manifest(folder)
        paths = args.paths or [folder / f"{name}{SUFFIX}" for name in sorted(entries)]
        pairs = [(path, entries.get(path.stem)) for path in paths]
        for path in sorted(folder.glob(f"*{SUFFIX}")):
            if path.stem not in entries:
                print(f"{path.stem}: is not in {MANIFEST}")
                return 1
    problems = 0
    arrays = 0
    for place, (path, entry) in enumerate(pairs, start=1):
        _progress(f"{place} of {len(pairs)}: {path.stem}")
        result = verify_fixture(path, entry)
        arrays += result.arrays
        problems += len(result.problems)
        for sentence in result.problems:
            print(sentence)
    print(f"{len(pairs)} fixtures, {arrays} arrays: {problems or 'no'} problem{'' if problems == 1 else 's'}")
    return 1 if problems else 0


def _entries_beside(path: Path) -> dict[str, Any]:
    """The manifest of the folder that a file lies in, empty when there is none."""
    from dsa_crosscheck.fixtures.golden.manifest import MANIFEST, read_manifest

    return read_manifest(path.parent) if (path.parent / MANIFEST).is_file() else {}


def run_diff(args: argparse.Namespace) -> int:
    """Exit code 0 when the two hold the same, 1 when not."""
    from dsa_crosscheck.fixtures.golden.difference import differences
    from dsa_crosscheck.fixtures.golden.golden import CONTENT_HASH
    from dsa_crosscheck.fixtures.golden.packaged import golden_at

    expected, got = golden_at(args.expected), golden_at(args.got)
    names = [name for name in {**expected.attributes, **got.attributes} if name != CONTENT_HASH]
    lines = [
        f"attribute {name}: {expected.attributes.get(name)!r}, {got.attributes.get(name)!r}"
        for name in names
        if expected.attributes.get(name) != got.attributes.get(name)
    ]
    lines += [difference.sentence for difference in differences(expected.arrays, got.arrays)]
    print("\n".join(lines) if lines else "no difference")
    return 1 if lines else 0


def run_show(args: argparse.Namespace) -> int:
    """Print what a fixture holds, or the names of the committed ones."""
    from dsa_crosscheck.compare.golden.show import describe_golden
    from dsa_crosscheck.fixtures.golden.packaged import golden_at, packaged_names

    print("\n".join(packaged_names()) if args.fixture is None else describe_golden(golden_at(args.fixture)))
    return 0


def run_export(args: argparse.Namespace) -> int:
    """Write the fixture in the form asked for."""
    from dsa_crosscheck.fixtures.golden.packaged import golden_at
    from dsa_crosscheck.fixtures.golden.raw_export import export_raw
    from dsa_crosscheck.fixtures.golden.safetensors_export import export_safetensors

    golden = golden_at(args.fixture)
    if args.raw is not None:
        export_raw(golden, args.raw)
    else:
        export_safetensors(golden, args.safetensors)
    return 0


def run_coverage(args: argparse.Namespace) -> int:
    """Exit code 0 when every committed fixture sees some fault, 1 when one sees none."""
    from dsa_crosscheck.compare.golden.coverage import coverage
    from dsa_crosscheck.compare.golden.page import coverage_table, replace_table
    from dsa_crosscheck.fixtures.golden.packaged import packaged_golden, packaged_names

    goldens = [packaged_golden(name) for name in packaged_names()]
    rows = [coverage(golden, _progress) for golden in goldens]
    table = coverage_table(rows, goldens)
    if args.out is None:
        print(table)
    else:
        replace_table(args.out, table)
    blind = [row.fixture for row in rows if not row.total]
    for name in blind:
        print(f"{name}: sees no fault")
    return 1 if blind else 0


def _recipes(names: list[str]) -> list[Recipe]:
    from dsa_crosscheck.fixtures.golden.catalogue import BY_NAME, recipe

    return [recipe(name) for name in names or BY_NAME]


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
