"""`dpfl-bench version`: of this package, and which of the parts that it can use are there."""

from __future__ import annotations

import platform
import re
import sys
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dpfl_bench import RESULTS_VERSION, __version__
from dpfl_bench.commands import arguments

EXAMPLES = ("version", "version --verbose", "version --verbose --json")
# distribution -> (the module that it brings, what it is for)
PARTS = {
    "torch": ("torch", "training"),
    "torchvision": ("torchvision", "images, ResNet-18 features"),
    "dp-accounting": ("dp_accounting", "the accountants pld and rdp"),
    "opacus": ("opacus", "engine.backend=opacus, privacy.accountant=prv (dpfl-bench[opacus])"),
    "kymatio": ("kymatio", "dataset.transform=scatternet (dpfl-bench[features])"),
    "nibabel": ("nibabel", "dataset=ixi (dpfl-bench[medical])"),
    "pillow": ("PIL", "dataset=messidor (dpfl-bench[medical])"),
    "tensorboard": ("tensorboard", "trackers=[tensorboard] (dpfl-bench[tensorboard])"),
    "wandb": ("wandb", "trackers=[wandb] (dpfl-bench[wandb])"),
    "submitit": ("submitit", "hydra/launcher=slurm (dpfl-bench[slurm])"),
}

DRIVER = Path("/proc/driver/nvidia")  # there with NVIDIA's kernel module


def command(words: list[str]) -> int:
    does = "The version of dpfl-bench; with --verbose, of every part that it can use, too."
    parser = arguments.parser("version", does, EXAMPLES, "docs/getting-started.md (how to install the parts)")
    parser.add_argument("--verbose", "-v", action="store_true", help="the parts, a line for each")
    arguments.add_json(parser)
    flags = parser.parse_intermixed_args(words)
    if flags.verbose or flags.json:
        arguments.answer(facts(), flags.json, text)
    else:
        sys.stdout.write(f"{__version__}\n")
    return 0


def facts() -> dict[str, Any]:
    """Versions, read from what pip wrote down. Nothing is imported."""
    return {
        "dpfl-bench": __version__,
        "results_version": RESULTS_VERSION,
        "python": platform.python_version(),
        "parts": [
            {"name": name, "version": _version(name, module), "for": use}
            for name, (module, use) in PARTS.items()
        ],
        "device": _device(),
    }


def text(facts: dict[str, Any]) -> str:
    width = max(map(len, PARTS))
    lines = [
        f"dpfl-bench {facts['dpfl-bench']} (results version {facts['results_version']})",
        f"python {facts['python']}",
        *(
            f"  {part['name']:{width}}  {part['version'] or 'not there':14}  {part['for']}"
            for part in facts["parts"]
        ),
        f"device: {facts['device']}",
    ]
    return "\n".join(lines) + "\n"


def _version(name: str, module: str) -> str | None:
    """None where the module cannot be imported. A module that pip does not know has no version."""
    spec = find_spec(module)
    if spec is None or spec.origin is None:  # a folder of that name is not the package
        return None
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "version not known"


def _device() -> str:
    """What device=auto finds, as far as that is known without torch: the kind of its build, and
    whether a driver is there.
    """
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        return "none, for torch is not there"
    written = Path(spec.origin).with_name("version.py").read_text()
    builds = dict(re.findall(r"^(cuda|hip|xpu)\b[^=]*= '([^']+)'", written, re.MULTILINE))
    if "cuda" in builds:
        driver = "a driver is there" if DRIVER.exists() else "no driver of NVIDIA's is there: the CPU"
        return f"torch is built for CUDA {builds['cuda']}; {driver}"
    if builds:
        return "torch is built for " + ", ".join(f"{kind} {version}" for kind, version in builds.items())
    if sys.platform == "darwin" and platform.machine() == "arm64":
        return "mps (Apple's GPU)"
    return "cpu (torch is built for CPUs alone)"
