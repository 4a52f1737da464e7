# Sourced by demo, test and .ci/run: `setup` makes .venv in the repository and installs this project
# into it, `setup dev` with the development tools. Installs again only after pyproject.toml changed.
# Sets root (the repository) and venv. Works in bash 3.2 (macOS).
# shellcheck shell=bash

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)
venv=$root/.venv

setup() {
    local extra=${1:-} wanted stamp
    wanted="$root $(cksum <"$root/pyproject.toml")" # the path: a copied .venv would run what is in the other folder
    for stamp in "$venv/installed-dev" "$venv/installed${extra:+-$extra}"; do # dev holds everything
        if _has_python "$venv/bin/python" && [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then return; fi
    done
    if ! _has_python "$venv/bin/python" || ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then _make_venv; fi
    _say "installing dpfl-bench${extra:+[$extra]} into .venv; PyTorch is large, so the first time takes some minutes"
    rm -f -- "$venv"/installed*
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --editable "$root${extra:+[$extra]}"
    "$venv/bin/python" -m compileall -q "$root/dpfl_bench" || true # as pip does, so that the first command starts as fast as later ones
    printf '%s\n' "$wanted" >"$venv/installed${extra:+-$extra}"
}

_make_venv() {
    local python
    python=$(_find_python)
    _say "making .venv with $("$python" --version) ($(command -v "$python"))"
    "$python" -m venv --clear "$venv"
}

# The interpreter that PYTHON names, else the user's own python3, else another one beside it.
_find_python() {
    local python
    for python in ${PYTHON:+"$PYTHON"} python3 python3.13 python3.12 python3.11; do
        if _has_python "$python"; then
            printf '%s\n' "$python"
            return
        elif [ -n "${PYTHON:-}" ]; then
            break # asked for by name: take no other
        fi
    done
    _say "${PYTHON:-python3, python3.13, python3.12, python3.11}: expected Python 3.11 or newer with its venv module, found none;" \
        "install it (Debian, Ubuntu: apt install python3-venv) or set PYTHON=/path/to/python"
    return 1
}

_has_python() {
    "$1" -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

_say() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
}
