#!/bin/sh
# Make a virtual environment: make_venv.sh PYTHON FOLDER
# Debian's python3 may lack venv: then python3-venv is installed first.
# An existing environment with pip is kept.
set -eu
python=$1
folder=$2

if "$folder/bin/python" -m pip --version >/dev/null 2>&1; then
    exit 0
fi
if ! command -v "$python" >/dev/null 2>&1; then
    echo "$python does not exist; name one with: make PYTHON=/path/to/python3" >&2
    exit 1
fi
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))'; then
    echo "gpumon needs Python 3.10 or newer; name one with: make PYTHON=/path/to/python3" >&2
    exit 1
fi
if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    pip_in_stdlib=$("$python" -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')/ensurepip
    sh "$(dirname "$0")/apt_install.sh" "$pip_in_stdlib=python3-venv"
fi
"$python" -m venv "$folder"
