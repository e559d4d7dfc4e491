#!/bin/sh
# What `make install` leaves must be enough for somebody else's C and C++ program: installs a build
# into a throw-away place and uses it from there, found by pkg-config alone.
#
#   test_install.sh BUILD_DIR VERSION
set -eu

build=$1
version=$2
prefix=$(mktemp -d)
trap 'rm -rf "$prefix"' EXIT

cmake --install "$build" --prefix "$prefix" >"$prefix/log"
pc=$(find "$prefix" -name pannier.pc)
[ -n "$pc" ] || { echo "no pannier.pc was installed"; exit 1; }
# Moved: the files name the prefix they were configured for.
export PKG_CONFIG_PATH="${pc%/*}"
export LD_LIBRARY_PATH="${pc%/*}/.."
pkg="pkg-config --define-variable=prefix=$prefix"

[ "$("$prefix/bin/pannier" --version)" = "pannier $version" ] || { echo "wrong version"; exit 1; }
for module in pannier pnmem; do
    [ "$($pkg --modversion $module)" = "$version" ] || { echo "$module.pc: wrong version"; exit 1; }
done

cat >"$prefix/mem.c" <<'EOF'
#include <pn_mem.h>
#include <stdio.h>
int main(void) {
    pn_booking booking;
    struct pn_detail detail;
    pn_ledger_set_domain(PN_DOMAIN_HOST, "host", 1000, 100);
    int too_much = pn_ledger_reserve(PN_PLACE_HOST, PN_OWNER_KV, 901, &booking, &detail);
    int fits = pn_ledger_reserve(PN_PLACE_HOST, PN_OWNER_KV, 900, &booking, &detail);
    printf("%s %d\n", pn_err_name(too_much), fits);
    return pn_ledger_release(&booking);
}
EOF
cat >"$prefix/engine.c" <<'EOF'
#include <pannier.h>
#include <stdio.h>
int main(void) {
    pn_engine *engine = NULL;
    struct pn_detail detail;
    struct pn_engine_options options = {};
    options.model_path = "/nonexistent.gguf";
    int rc = pn_engine_open(&options, &detail, &engine);
    pn_engine_free(engine);
    printf("%s\n", pn_err_name(rc));
    return 0;
}
EOF

# shellcheck disable=SC2046 # flags are words
for compile in "cc -std=c11" "c++ -std=c++11 -x c++"; do
    $compile $($pkg --cflags pnmem) "$prefix/mem.c" -x none -o "$prefix/mem" \
        $($pkg --static --libs pnmem)
    [ "$("$prefix/mem")" = "PN_E_NOFIT 0" ] || { echo "libpnmem ($compile) is wrong"; exit 1; }
    $compile $($pkg --cflags pannier) "$prefix/engine.c" -x none -o "$prefix/engine" \
        $($pkg --static --libs pannier)
    [ "$("$prefix/engine")" = PN_E_NOTFOUND ] || { echo "libpannier ($compile) is wrong"; exit 1; }
done

# The example of docs/EMBEDDING.md, which is the one in examples/.
source=$(dirname "$0")/../..
sed -n '/^```c$/,/^```$/p' "$source/docs/EMBEDDING.md" | sed '1d;$d' >"$prefix/embed_mem.c"
diff "$source/examples/embed_mem.c" "$prefix/embed_mem.c" ||
    { echo "docs/EMBEDDING.md and examples/embed_mem.c differ"; exit 1; }
cc -std=c11 -Wall -Wextra -Werror $($pkg --cflags pnmem) "$prefix/embed_mem.c" \
    -o "$prefix/embed_mem" $($pkg --static --libs pnmem)
"$prefix/embed_mem" >"$prefix/said"
# The second request is longer than its context anywhere; the first fits wherever this is tested,
# unless the machine stands still just now.
for line in "^admitted: 27262976 bytes$|^refused, .* stall" "^refused, 2096 tokens would do: " \
    "^level [A-Z]*, [1-4] slots$"; do
    grep -qE "$line" "$prefix/said" || { echo "embed_mem said:"; cat "$prefix/said"; exit 1; }
done
echo "installed and used from C and C++"
