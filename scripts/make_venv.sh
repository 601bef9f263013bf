#!/usr/bin/env bash
# Create .venv with the given Python and install the pinned uv (version and hashes from the lock file).
set -euo pipefail
python=${1:-python3}
if ! command -v "$python" >/dev/null; then
  echo "Python 3.11 or newer is needed, and '$python' was not found. Install it, or name it: make PYTHON=/path/to/python3" >&2
  exit 2
fi
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
  echo "Python 3.11 or newer is needed; '$python' is $("$python" -V). Name a newer one: make PYTHON=python3.12" >&2
  exit 2
fi
if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
  echo "Python's venv module is missing. On Debian and Ubuntu: apt-get install python3-venv" >&2
  exit 2
fi
[[ -x .venv/bin/python ]] || "$python" -m venv .venv
pin=$(mktemp)
trap 'rm -f "$pin"' EXIT
sed -n '/^uv==/,/^[^ ]/p' requirements-dev.lock | sed '/^uv==/b; /^ /!d; /^ *#/d' >"$pin"
.venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r "$pin"
