#!/bin/sh
# Runs every fuzz target of a build for some seconds each. What it finds is kept beside the target.
#
#   scripts/fuzz.sh BUILD_DIR SECONDS
set -eu

build=$1
seconds=$2
found=0
for target in "$build"/fuzz/*_fuzz; do
    [ -x "$target" ] && [ -f "$target" ] || continue
    found=1
    name=${target##*/}
    mkdir -p "$build/corpus/$name" "$build/findings"
    # New inputs go to the first folder; the ones of the repository are read only.
    seeds=fuzz/corpus/${name%_fuzz}
    [ -d "$seeds" ] || seeds=
    echo "fuzz: $name for $seconds s"
    # shellcheck disable=SC2086 # absent when there are no seeds
    "$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
        -artifact_prefix="$build/findings/$name-" "$build/corpus/$name" $seeds \
        >"$build/findings/$name.log" 2>&1 || {
        tail -n 40 "$build/findings/$name.log"
        echo "fuzz: $name found something, see $build/findings"
        exit 1
    }
    grep -E 'stat::(number_of_executed_units|peak_rss_mb)' "$build/findings/$name.log" || true
done
[ "$found" = 1 ] || { echo "fuzz: no targets in $build/fuzz" >&2; exit 1; }
