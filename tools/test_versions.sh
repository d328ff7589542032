#!/bin/sh
# test_versions.sh TESTS...: run tests on each Python from 3.11 to 3.14 that uv, pyenv or PATH has.
# Each has an environment of its own in build/python-VERSION. A version that is missing is named.
set -eu
find_python() {
    if command -v uv >/dev/null && uv python find --no-project --no-python-downloads "$1" 2>/dev/null; then
        return
    fi
    for python in "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*/bin/python "$(command -v "python$1")"; do
        # a shim of pyenv may stand for a version that is not installed
        if "$python" -c "" 2>/dev/null; then
            echo "$python"
            return
        fi
    done
    return 1
}

failed=
for version in 3.11 3.12 3.13 3.14; do
    python=$(find_python "$version") || {
        echo "Python $version: missing (uv python install $version, or pyenv install $version)"
        continue
    }
    venv=build/python-$version
    [ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
    "$venv/bin/python" -m pip --disable-pip-version-check install --quiet \
        -c constraints.txt -e '.[mpi]' -r requirements-dev.txt
    echo "Python $version: $("$venv/bin/python" -V)"
    "$venv/bin/python" -m pytest -q -n 2 --dist loadgroup "$@" || failed="$failed $version"
done
[ -z "$failed" ] || { echo "failed on Python$failed"; exit 1; }
