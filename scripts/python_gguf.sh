#!/bin/sh
# Fetches the Python package gguf, which Debian doesn't have, into a folder: test_generators asks
# for it. Once; where it can't be had it says so, and that test is skipped.
#
#   scripts/python_gguf.sh FOLDER
set -eu

[ ! -f "$1/gguf/__init__.py" ] || exit 0
python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore \
    --no-cache-dir --no-deps --only-binary=:all: --retries 1 --timeout 10 --require-hashes \
    --target "$1" -r /dev/stdin >/dev/null 2>&1 <<'EOF' ||
gguf==0.19.0 --hash=sha256:70bcd10edfe697fb2dad6e40af2234b9d8ece9a41a99761405121ebda1c3c1cd
EOF
    echo "python_gguf: the package gguf can't be fetched; test_generators will be skipped" >&2
