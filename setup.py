"""Everything else stands in pyproject.toml. A wheel or sdist tells the commit that it is made of; a
checkout needs no file for that.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

HERE = Path(__file__).parent
FILE = "dpfl_bench/_build.py"


def git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], cwd=HERE, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def build_record() -> str | None:
    """None where this is no checkout."""
    commit = git("rev-parse", "HEAD") if git("ls-files", "--error-unmatch", "setup.py") else None
    changed = git("status", "--porcelain", "--untracked-files=no")
    untracked = git("ls-files", "--others", "--exclude-standard", "--", "*.py", "*.yaml", "*.yml")
    if not commit:
        return None
    doc, dirty = '"""Written when this was built."""', bool(changed or untracked)
    return f"{doc}\n\nCOMMIT = {commit!r}\nDIRTY = {dirty}\n"


RECORD = build_record()  # before anything is built, which may leave files


def write(target: Path) -> None:
    """What an sdist tells stays, where this is no checkout."""
    if RECORD is not None:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)  # an sdist's files are links to the checkout's
        target.write_text(RECORD)


class BuildPy(build_py):
    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            write(Path(self.build_lib) / FILE)


class Sdist(sdist):
    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        super().make_release_tree(base_dir, files)
        write(Path(base_dir) / FILE)


def configs() -> list[str]:
    """conf/ and every folder in it, as packages: the wheel has them as dpfl_bench.conf."""
    folders = [
        HERE / "conf",
        *(path for path in sorted((HERE / "conf").rglob("*")) if any(path.glob("*.yaml"))),
    ]
    return [".".join(("dpfl_bench", *folder.relative_to(HERE).parts)) for folder in folders]


packages = [*find_packages(include=["dpfl_bench", "dpfl_bench.*"]), *configs()]
setup(packages=packages, cmdclass={"build_py": BuildPy, "sdist": Sdist})
