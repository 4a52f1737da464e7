"""What a mistyped key or choice was meant to be."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

# other programs' names of ours, which no likeness of letters finds
ELSEWHERE = {
    "algorithm": "algo",
    "clip_norm": "privacy.clip",
    "cohort": "sampled_clients",
    "epochs": "local_epochs",
    "epsilon": "eps",
    "learning_rate": "lr",
    "max_grad_norm": "privacy.clip",
    "num_clients": "clients",
    "num_rounds": "rounds",
    "optimizer": "algo",
    "sigma": "privacy.noise_multiplier",
    "target_epsilon": "eps",
}
ALIKE = 0.6  # of difflib's ratio: esp is 0.67 like eps


def choice(given: str, known: Iterable[str]) -> str | None:
    """The known word that looks most like the given one; None if none does."""
    from difflib import get_close_matches

    found = get_close_matches(given.lower(), sorted(known), n=1, cutoff=ALIKE)
    return found[0] if found else None


def key(given: str, known: Sequence[str]) -> str | None:
    """The same of dotted keys: neighbours is privacy.neighbours, privacy.esp is eps."""
    last = given.rpartition(".")[2]
    if ELSEWHERE.get(last) in known and given not in known:
        return ELSEWHERE[last]
    named: dict[str, str] = {}  # last name -> the least deep key of that name
    for path in sorted(known, key=lambda path: (path.count("."), path)):
        named.setdefault(path.rpartition(".")[2], path)
    if last in named:
        return named[last]
    beside = {path.rpartition(".")[2]: path for path in known if _branch(path) == _branch(given)}
    for names in (beside, named):
        if (near := choice(last, names)) is not None:
            return names[near]
    return None


def _branch(path: str) -> str:
    return path.rpartition(".")[0]


def namesakes(given: str, known: Sequence[str]) -> list[str]:
    """The keys of other branches that end as the given one does: memory is engine.memory and
    privacy.memory.
    """
    last = given.rpartition(".")[2]
    return sorted(path for path in known if path != given and path.rpartition(".")[2] == last)


def did_you_mean(near: str | None, otherwise: str = "") -> str:
    """The end of a line that refuses: a question, or what is said where nothing is near."""
    return f"; did you mean {near}?" if near is not None else f"; {otherwise}" if otherwise else ""
