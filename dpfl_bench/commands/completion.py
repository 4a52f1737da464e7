"""`dpfl-bench completion`: what the shell asks when Tab is pressed."""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
from collections.abc import Sequence
from importlib import import_module

from dpfl_bench.commands import VERBS, arguments

EXAMPLES = (
    "completion bash >> ~/.bashrc",
    "completion zsh >> ~/.zshrc",
    "completion fish > ~/.config/fish/completions/dpfl-bench.fish",
)
DOES = (
    "Prints what makes Tab complete verbs, flags, keys, choices and artefacts. For this shell:\n"
    '  eval "$(dpfl-bench completion bash)"     or zsh;     fish: dpfl-bench completion fish | source'
)
# A key ends with = or . and gets no blank behind it. bash puts a completion in place of what
# follows the last of its word breaks, which = is one of.
BASH = """\
_dpfl_bench() {
    local IFS=$'\\n' line=${COMP_LINE:0:COMP_POINT}
    local word=${line##* }
    COMPREPLY=($(COMP_LINE=$line "$1" completion bash --query 2>/dev/null))
    case $COMP_WORDBREAKS in *=*) COMPREPLY=("${COMPREPLY[@]#"${word%"${word##*=}"}"}") ;; esac
}
complete -o nospace -o default -F _dpfl_bench dpfl-bench
"""
# zsh takes a word with its =, and puts the blank behind what is whole itself.
ZSH = """\
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit; }
_dpfl_bench() {
    local -a found whole begun
    local line="${(j: :)words[1,CURRENT-1]} $PREFIX"
    found=("${(@f)$(COMP_LINE=$line ${words[1]} completion zsh --query 2>/dev/null)}")
    whole=(${(M)found:#* }) begun=(${found:#* })
    whole=(${whole% })
    (( $#whole )) && compadd -- $whole
    (( $#begun )) && compadd -S '' -- $begun
    (( $#whole + $#begun )) || _files
}
compdef _dpfl_bench dpfl-bench
"""
# fish puts no blank behind = . and /
FISH = """\
function __dpfl_bench
    set -lx COMP_LINE (commandline -cp)
    set -l words (commandline -opc)
    $words[1] completion fish --query 2>/dev/null | string trim --right
end
complete -c dpfl-bench -a '(__dpfl_bench)'
"""
SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}
SETTINGS = ("run", "plan", "audit", "data show")  # these take settings anywhere
OF_DATA = ("list", "fetch", "verify", "show")
FLAG = re.compile(r"--[a-z][a-z-]+")


def command(words: list[str]) -> int:
    parser = arguments.parser("completion", DOES, EXAMPLES, "docs/getting-started.md#install")
    parser.add_argument("shell", choices=[*SCRIPTS], help="the shell")
    query = "what may stand at the end of the line in COMP_LINE, a line each"
    parser.add_argument("--query", action="store_true", help=query)
    flags = parser.parse_intermixed_args(words)
    if not flags.query:
        sys.stdout.write(SCRIPTS[flags.shell])
        return 0
    found = proposed(os.environ.get("COMP_LINE", "dpfl-bench "))
    sys.stdout.write("".join(f"{each}\n" for each in found))
    return 0


def proposed(line: str) -> list[str]:
    """What may stand at the end of the line. What is whole has a blank behind it."""
    _, *before = line.split()
    word = "" if line.endswith(" ") or not before else before.pop()
    found = [each for each in _all(before, word) if each.startswith(word)]
    return [each if each.endswith(("=", ".", "/")) else f"{each} " for each in found]


def _all(before: Sequence[str], word: str) -> Sequence[str]:
    if not before:
        return VERBS
    verb = " ".join(before[: 2 if before[0] == "data" else 1])
    if word.startswith("-"):
        return _flags(verb)
    if verb in ("data", "completion", "list"):
        return (
            {"data": OF_DATA, "completion": (*SCRIPTS,), "list": ("papers",)}[verb]
            if len(before) == 1
            else []
        )
    if verb == "reproduce" and len(before) == 1:
        from dpfl_bench.papers.artefact import artefacts

        return ["all", *sorted({name.partition("/")[0] for name in artefacts()}), *sorted(artefacts())]
    if verb in ("data fetch", "data verify") and len(before) == 2:
        from dpfl_bench.config import catalogue

        return [file.stem for file in catalogue.named("dataset", None)]
    return _settings(before, word) if verb in SETTINGS else []


def _settings(before: Sequence[str], word: str) -> list[str]:
    from dpfl_bench.config import complete

    given = [*before]
    places = [k for k, each in enumerate(given[:-1]) if each in ("-cd", "--config-dir")]
    own = given[places[-1] + 1] if places and os.path.isdir(given[places[-1] + 1]) else None
    others = [each for each in given if "=" in each and not each.startswith("-")]
    return complete.settings(word, [each for each in others if "," not in each], own)


def _flags(verb: str) -> list[str]:
    """As the verb's own --help names them."""
    name, *more = verb.split()
    if name not in VERBS:
        return []
    help = io.StringIO()
    with contextlib.redirect_stdout(help), contextlib.suppress(SystemExit):
        import_module(f"dpfl_bench.commands.{name}").command([*more, "--help"])
    return sorted({*FLAG.findall(help.getvalue())})
