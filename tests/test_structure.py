"""Who imports whom, and the session's strict JAX."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

ROOT = Path(__file__).parent.parent
DECLARATIONS = {"geometry", "formats", "codec_spec", "conventions", "layout", "presets"}
OURS = "dsa_crosscheck"
ALLOWED = {
    "reference": {"reference"},
    "fixtures": {"reference", "fixtures"},
    "cuda_impl": {"reference", "cuda_impl"},
    "compare": {"reference", "fixtures", "cuda_impl", "compare"},
}


def imported_modules(source: str) -> Iterator[str]:
    """Absolute names that a file imports, ``from a.b import c`` both as a.b and as a.b.c."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import"
            assert node.module is not None
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imports_of(package: str) -> list[tuple[str, list[str]]]:
    """(file, dotted parts of each import of ours) over a package's files."""
    found = []
    for path in sorted((ROOT / package).rglob("*.py")):
        for name in imported_modules(path.read_text()):
            if name.split(".")[0] == OURS:
                found.append((str(path.relative_to(ROOT)), name.split(".")))
    return found


@pytest.mark.parametrize("package", ALLOWED)
def test_imports_run_one_way(package: str) -> None:
    wrong = [(file, parts) for file, parts in imports_of(package) if len(parts) < 2 or parts[1] not in ALLOWED[package]]
    assert wrong == []


def test_cuda_impl_takes_only_declarations_from_reference() -> None:
    wrong = [
        (file, parts)
        for file, parts in imports_of("cuda_impl")
        if parts[1] == "reference" and (len(parts) < 3 or parts[2] not in DECLARATIONS)
    ]
    assert wrong == []


def test_declarations_import_only_declarations() -> None:
    """Otherwise cuda_impl would reach the reference's arithmetic through them."""
    for name in sorted(DECLARATIONS):
        for module in imported_modules((ROOT / "reference" / f"{name}.py").read_text()):
            parts = module.split(".")
            assert parts[0] not in ("jax", "torch"), name
            assert parts[0] != OURS or (parts[1] == "reference" and parts[2] in DECLARATIONS), (name, module)


def test_scan_sees_every_form_of_import() -> None:
    source = "import a.b as c\ndef f():\n    from d.e import g, h\nif True:\n    import i\n"
    assert sorted(imported_modules(source)) == ["a.b", "d.e", "d.e.g", "d.e.h", "i"]


IMPORT_ALL = """
import importlib, pkgutil, sys
import dsa_crosscheck.reference as package
names = [module.name for module in pkgutil.iter_modules(package.__path__)]
for name in names:
    importlib.import_module("dsa_crosscheck.reference." + name)
loaded = {name.split(".")[0] for name in sys.modules}
ours = {name.split(".")[1] for name in sys.modules if name.startswith("dsa_crosscheck.")}
print(len(names), "torch" in loaded, "tvm_ffi" in loaded, sorted(ours))
"""


def test_reference_never_imports_torch() -> None:
    """In a fresh process: every module of it, and whatever those load in turn."""
    done = subprocess.run([sys.executable, "-c", IMPORT_ALL], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    modules = len([path for path in (ROOT / "reference").glob("*.py") if path.stem != "__init__"])
    assert done.stdout.strip() == f"{modules} False False ['reference']"


def test_session_jax_is_strict() -> None:
    assert jnp.asarray(1.0).dtype == jnp.float64
    with pytest.raises(jax.dtypes.TypePromotionError, match="no available implicit dtype promotion"):
        jnp.ones(2, jnp.int32) + jnp.ones(2, jnp.float32)
    with pytest.raises(ValueError, match="rank"):
        jnp.ones((2, 2)) + jnp.ones(2)
