"""origin.json: the code and the data that a run was computed by and on, by their bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from dpfl_bench.config.settings import Settings
from dpfl_bench.data.contents import Contents
from dpfl_bench.results import code_hashes
from dpfl_bench.results.folder import BROKEN, RunFolder

FILE = "origin.json"
SHOWN = 3  # names of what differs


@dataclass(frozen=True)
class Origin:
    """`code`: module -> (hash, file), the targets' and what they import of the user's own. `data`:
    None where it is not known.
    """

    code: Mapping[str, tuple[str, str]]
    data: Contents | None

    @property
    def hashes(self) -> dict[str, str | None]:
        """`origin` in result.json. Equal where the same code and data would be used."""
        targets = code_hashes.joined({name: digest for name, (digest, _) in self.code.items()})
        return {
            "targets": targets,
            "package": code_hashes.package(),
            "data": self.data.hash if self.data else None,
        }

    def detail(self) -> dict[str, Any]:
        """The same and what it is made of, so that it can be said what differs."""
        code = {name: {"hash": digest, "file": file} for name, (digest, file) in sorted(self.code.items())}
        return {**self.hashes, "code": code, "contents": dict(self.data.parts) if self.data else None}


def code_of(settings: Settings) -> dict[str, tuple[str, str]]:
    return code_hashes.code(
        code_hashes.named(settings.algo, settings.dataset, settings.model, settings.partition)
    )


def read(folder: RunFolder) -> dict[str, Any]:
    """origin.json, empty where there is none that can be read."""
    try:
        origin = folder.read(FILE)
    except BROKEN:
        return {}
    return origin if isinstance(origin, dict) else {}


def parts(folder: RunFolder, key: str) -> dict[str, str]:
    """Of origin.json: the hash of each module (`code`), or of each file or array (`contents`), by
    name.
    """
    part = read(folder).get(key)
    plain = part if isinstance(part, dict) else {}
    return {
        name: str(value.get("hash") if isinstance(value, dict) else value) for name, value in plain.items()
    }


def notes(folder: RunFolder) -> list[dict[str, Any]]:
    """What was accepted, and when."""
    accepted = read(folder).get("accepted")
    return [note for note in accepted if isinstance(note, dict)] if isinstance(accepted, list) else []


def write(folder: RunFolder, origin: Origin) -> None:
    """At the start of an attempt. What was accepted earlier stays."""
    folder.write(FILE, {**origin.detail(), "accepted": notes(folder)})


def accept(folder: RunFolder, now: Origin) -> None:
    """Note that somebody took what other code or data made."""
    note = {"when": datetime.now(UTC).isoformat(timespec="seconds"), **now.hashes}
    folder.write(FILE, {**read(folder), "accepted": [*notes(folder), note]})


def accepted(folder: RunFolder, now: Origin) -> str | None:
    """When somebody did so under the code and the data that there are now."""
    hashes = now.hashes
    same = [
        note for note in notes(folder) if all(note.get(key) == hashes[key] for key in ("targets", "data"))
    ]
    return str(same[-1].get("when")) if same else None


def differing(then: Mapping[str, Any], now: Origin, folder: RunFolder) -> list[str]:
    """What is other than it was: `code` and `data`, each with the names of what changed. Data that
    are not known differ from nothing.
    """
    hashes = now.hashes
    changes = []
    if then.get("targets") != hashes["targets"]:
        old = parts(folder, "code") if then.get("targets") else {}
        changes.append(f"code ({names(old, {name: hash for name, (hash, _) in now.code.items()})})")
    if now.data and then.get("data") != hashes["data"]:
        changes.append(
            f"data ({names(parts(folder, 'contents') if then.get('data') else {}, now.data.parts)})"
        )
    return changes


def names(old: Mapping[str, Any], new: Mapping[str, str]) -> str:
    """Of what changed, came or went."""
    if not old:
        return "it is not known by which"
    changed = [name for name in sorted({*old, *new}) if old.get(name) != new.get(name)]
    shown = [
        f"{name}{'' if name in old and name in new else ' is new' if name in new else ' is gone'}"
        for name in changed[:SHOWN]
    ]
    return (
        ", ".join([*shown, *([f"{len(changed) - SHOWN} more"] if len(changed) > SHOWN else [])])
        or "as a whole"
    )
