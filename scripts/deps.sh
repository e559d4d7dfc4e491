#!/bin/sh
# Installs what is missing for the named purposes, as root or through sudo, with apt. Where there is
# no apt, names what is missing and stops. Does nothing, and needs no network, when all is there.
#
#   scripts/deps.sh PURPOSE...
#
# Purposes: build; check (tests and linters); aarch64 (compiler and emulator; its libraries come by
# scripts/sysroot.sh); fuzz; demo (fetching its model).
set -eu

# purpose | Debian package | command that succeeds where it is there already
needs='
build | build-essential   | echo "int main(void){return 0;}" | cc -x c -o /dev/null -
build | cmake             | cmake --version | grep -Eq "version (3\.(2[5-9]|[3-9][0-9])|[4-9])"
build | ninja-build       | command -v ninja
build | pkg-config        | command -v pkg-config
build | libpcre2-dev      | pkg-config --exists libpcre2-8
build | libutf8proc-dev   | pkg-config --exists libutf8proc
build | libjansson-dev    | pkg-config --exists jansson
build | libedit-dev       | pkg-config --exists libedit
check | python3           | command -v python3
check | python3-numpy     | python3 -c "import numpy" || /usr/bin/python3 -c "import numpy"
check | python3-pip       | python3 -m pip --version
check | binutils          | command -v objdump
check | libcmocka-dev     | pkg-config --exists cmocka
check | clang-format      | command -v clang-format
check | clang-tidy        | command -v clang-tidy
fuzz  | clang             | command -v clang
aarch64 | gcc-aarch64-linux-gnu | command -v aarch64-linux-gnu-gcc
aarch64 | qemu-user       | command -v qemu-aarch64
demo  | python3           | command -v python3
demo  | python3-pip       | python3 -m pip --version
demo  | ca-certificates   | test -d /etc/ssl/certs
'

missing=
for purpose in "$@"; do
    known=
    while IFS='|' read -r for_what package probe; do
        [ "$(echo "$for_what" | tr -d ' ')" = "$purpose" ] || continue
        known=1
        package=$(echo "$package" | tr -d ' ')
        (eval "$probe") </dev/null >/dev/null 2>&1 || missing="$missing $package"
    done <<EOF
$needs
EOF
    if [ -z "$known" ]; then
        echo "deps: unknown purpose '$purpose'" >&2
        exit 2
    fi
done
[ -n "$missing" ] || exit 0

as_root=
[ "$(id -u)" = 0 ] || as_root=sudo
if ! command -v apt-get >/dev/null 2>&1 || { [ -n "$as_root" ] && ! command -v sudo >/dev/null; }
then
    echo "deps: these are needed and can't be installed from here (Debian's names):$missing" >&2
    exit 1
fi

echo "deps: installing$missing"
export DEBIAN_FRONTEND=noninteractive
install() {
    # shellcheck disable=SC2086 # a list of package names
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends \
        $missing </dev/null >"$log" 2>&1
}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# The lists may be absent or old: they are read again when an install fails.
if ! install; then
    if ! $as_root apt-get update -qq </dev/null >"$log" 2>&1 || ! install; then
        tail -n 5 "$log" >&2
        echo "deps: apt-get could not install:$missing" >&2
        exit 1
    fi
fi
