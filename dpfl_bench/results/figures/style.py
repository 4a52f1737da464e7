"""One look for every figure. An algorithm has the same colour and marker in all of them, dashed and
hollow without privacy. Budgets run through an ordered scale. Colours are those of Okabe and Ito,
which the colour-blind tell apart; markers tell lines apart in black and white.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.results.escape import plain

FREE = "no privacy"
LineOf = Literal["algorithm", "budget", "other"]
# fields whose values have a style of their own
LINES: dict[str, LineOf] = {"algo": "algorithm", "sweep": "algorithm", "eps": "budget", "budget": "budget"}
BLUE, ORANGE, GREEN, RED, PURPLE, SKY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9"
BLACK, INDIGO, BROWN, GREY = "#000000", "#332288", "#7F5539", "#4D4D4D"
PALETTE = (BLUE, RED, GREEN, PURPLE, ORANGE, SKY, INDIGO, BROWN, BLACK)
OTHERS = ("#999933", "#882255", "#44AA99", "#AA4499", "#661100")  # of a user's own algorithms
MARKERS = "os^DvPXph<>8d"
# width of a figure in inches: one column of the venue, or a text width
WIDTHS = {"icml": 3.25, "neurips": 5.5, "ieee": 3.5, "single": 3.4, "double": 7.0}
RC: Any = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # comes with matplotlib, so a figure is the same everywhere
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "axes.linewidth": 0.6,
    "axes.unicode_minus": True,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": "#D9D9D9",
    "grid.linewidth": 0.5,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "figure.titlesize": 8.5,
    "lines.linewidth": 1.3,
    "lines.markersize": 4,
    "pdf.fonttype": 42,  # fonts are embedded whole, as venues ask
    "ps.fonttype": 42,
    "svg.fonttype": "path",
    "svg.hashsalt": "dpfl-bench",
    "path.simplify": False,
}


@dataclass(frozen=True)
class Style:
    colour: str
    marker: str
    line: str  # -, -- or :
    filled: bool  # the marker
    label: str


_ALGORITHMS = {
    "fedavg": ("FedAvg", BLUE, "o"),
    "scaffnew": ("ScaffNew", RED, "s"),
    "scaffold": ("SCAFFOLD", GREEN, "^"),
    "scaffold_warm": ("SCAFFOLD-warm", BROWN, "v"),
    "fedexp": ("FedEXP", PURPLE, "D"),
    "fedexp_scaffold": ("FedEXP-SCAFFOLD", INDIGO, "P"),
    "fedsgd": ("FedSGD", ORANGE, "X"),
    "normfedavg": ("NormFedAvg", SKY, "p"),
    "pfl": ("PFL", BLACK, "h"),
}
_DATA = {
    "mnist": "MNIST",
    "fashion_mnist": "Fashion-MNIST",
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "emnist_balanced": "EMNIST balanced",
    "emnist_bymerge": "EMNIST by merge",
    "femnist": "FEMNIST",
    "breast_cancer": "breast cancer",
    "ixi": "Fed-IXI",
    "messidor": "Messidor",
    "reddit": "Reddit",
    "shakespeare": "Shakespeare",
    "synthetic_linear": "synthetic (linear)",
    "synthetic_logistic": "synthetic (logistic)",
}
_KEYS = {
    "eps": "privacy budget ε",
    "budget": "privacy budget ε",
    "algo": "algorithm",
    "dataset": "data set",
    "round": "round",
    "rounds": "rounds",
    "steps": "local steps so far",
    "local_steps": "local steps per round",
    "total_steps": "local steps in all",
    "clients": "clients",
    "sampled_clients": "clients per round",
    "batch_size": "records per local step",
    "sample_rate": "sampling rate of records",
    "lr": "local step size",
    "server_lr": "server step size",
    "server_step": "server step",
    "privacy.clip": "bound C",
    "clip": "bound C",
    "privacy.noise_multiplier": "noise multiplier",
    "privacy.bound": "bound",
    "train_loss": "training loss",
    "psi": "potential Ψ",
    "psi_bound": "bound on the potential Ψ",
    "suboptimality": "suboptimality f(x) – f*",
    "distance": "distance to the optimum ‖x – x*‖",
    "client_test_metric": "mean score of the clients",
}
_SYMBOLS = {
    "eps": "ε",
    "budget": "ε",
    "privacy.clip": "C",
    "clip": "C",
    "privacy.bound": "",
    "algo": "",
    "model": "",
    "dataset": "",
    "partition": "",
    "privacy": "",
    "local_steps": "local steps",
}


def inches(venue: str) -> float:
    """The width of a figure for a venue."""
    if venue not in WIDTHS:
        raise ConfigError(f"figure.width={venue}: expected {' or '.join(WIDTHS)}")
    return WIDTHS[venue]


def name_of(key: str) -> str:
    """A setting or a column as a reader calls it."""
    bare = key.removesuffix(".name")
    return _KEYS.get(bare) or plain(bare).rpartition(".")[2].replace("_", " ")


def word_of(value: str) -> str:
    """An algorithm or a data set of ours as papers write it; any other word as it stands."""
    algorithm = _algorithm(value)
    if algorithm is not None:
        return algorithm.label
    return _DATA.get(value) or plain(value)


def label_of(key: str, value: Any) -> str:
    """A value of a key: ε = 2, no privacy, C = 0.3, DP-FedAvg, normalise."""
    key = key.removesuffix(".name")
    number = _number(value)
    if key in ("eps", "budget") and number == math.inf:
        return FREE
    said = f"{number:.4g}" if number is not None else word_of(str(value))
    symbol = _SYMBOLS.get(key, name_of(key))
    return f"{symbol} = {said}" if symbol else said


def style_of(name: str) -> Style:
    """Of an algorithm, wherever it is drawn. A user's own has a style that follows from its
    name.
    """
    known = _algorithm(name)
    if known is not None:
        return known
    digest = hashlib.sha256(name.removeprefix("dp_").encode("utf-8", "replace")).digest()
    colour, marker = OTHERS[digest[0] % len(OTHERS)], MARKERS[digest[1] % len(MARKERS)]
    return Style(colour, marker, "-", True, plain(name))


def styles_of(names: Sequence[str], kind: LineOf) -> dict[str, Style]:
    """Of the lines of one figure, in the order of its legend."""
    names = list(dict.fromkeys(names))
    if kind == "algorithm":
        return _told_apart({name: style_of(name) for name in names})
    if kind == "budget":
        return _budgets(names)
    if len(names) > 3 and all(_number(name) is not None for name in names):
        return {name: replace(style, label=name) for name, style in _ordered(names).items()}
    styles = {
        name: Style(PALETTE[index % len(PALETTE)], MARKERS[index % len(MARKERS)], "-", True, plain(name))
        for index, name in enumerate(name for name in names if name != FREE)
    }
    return styles | {name: Style(GREY, ".", "--", True, FREE) for name in names if name == FREE}


def _algorithm(name: str) -> Style | None:
    bare = name.removeprefix("dp_")
    if bare not in _ALGORITHMS:
        return None
    label, colour, marker = _ALGORITHMS[bare]
    private = name.startswith("dp_") or bare == "pfl"
    words = f"DP-{label}" if name.startswith("dp_") else label
    return Style(colour, marker, "-" if private else "--", private, words)


def _told_apart(styles: Mapping[str, Style]) -> dict[str, Style]:
    """Two algorithms of a user's own may have drawn one style: the later takes the next marker."""
    taken: set[tuple[str, str, str]] = set()
    apart: dict[str, Style] = {}
    for name, style in styles.items():
        shift = MARKERS.find(style.marker)
        for step in range(len(MARKERS)):
            if (style.colour, style.marker, style.line) not in taken:
                break
            style = replace(style, marker=MARKERS[(shift + step + 1) % len(MARKERS)])
        taken.add((style.colour, style.marker, style.line))
        apart[name] = style
    return apart


def _budgets(names: Sequence[str]) -> dict[str, Style]:
    """No privacy first, dashed and dark; then from the largest budget to the smallest."""
    free = [name for name in names if _first_number(name) == math.inf]
    private = sorted((n for n in names if n not in free), key=lambda n: -_first_number(n))
    without = Style(GREY, ".", "--", True, FREE)
    return {name: without for name in free} | _ordered(private)


def _ordered(names: Sequence[str]) -> dict[str, Style]:
    """From light to dark, in grey too."""
    import matplotlib
    from matplotlib.colors import to_hex

    scale = matplotlib.colormaps["viridis"]
    last = max(1, len(names) - 1)
    return {
        name: Style(
            to_hex(scale(0.82 * (1 - index / last))), MARKERS[index % len(MARKERS)], "-", True, _budget(name)
        )
        for index, name in enumerate(names)
    }


def _budget(name: str) -> str:
    number = _number(name)
    return plain(name) if number is None else f"ε = {number:.4g}"


def _number(value: Any) -> float | None:
    if isinstance(value, bool):
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def _first_number(text: str) -> float:
    """By which budgets with words are ordered: nominal 13, valid 0.86."""
    number = _number(text)
    if number is not None:
        return number
    match = re.search(r"\binf\b|no privacy|\d*\.?\d+", text)
    return -1.0 if match is None else math.inf if match[0][0] in "in" else float(match[0])
