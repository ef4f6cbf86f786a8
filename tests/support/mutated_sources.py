"""A copy of the sources with one line broken: the changed package is copied, the others are linked."""

from __future__ import annotations

import shutil
from pathlib import Path

from scenarios.mutants.mutant import Mutant

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = sorted(link.name for link in (ROOT / "src" / "strandline").iterdir() if link.is_symlink())


def copy_of_the_sources(folder: Path, mutant: Mutant) -> Path:
    """What PYTHONPATH has to begin with."""
    house = folder / "src" / "strandline"
    house.mkdir(parents=True)
    shutil.copy(ROOT / "src" / "strandline" / "__init__.py", house)
    changed = package_of(mutant)
    for package in PACKAGES:
        if package != changed:
            (house / package).symlink_to(ROOT / package)
            continue
        shutil.copytree(ROOT / package, house / package, ignore=shutil.ignore_patterns("__pycache__"))
    path = house / mutant.file
    text = path.read_text()
    assert text.count(mutant.before) == 1, f"{mutant.name}: {mutant.before!r} must stand once in {mutant.file}"
    path.write_text(text.replace(mutant.before, mutant.after))
    return house.parent


def package_of(mutant: Mutant) -> str:
    return mutant.file.split("/")[0]
