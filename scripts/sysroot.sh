#!/bin/sh
# The libraries for another processor that a cross build needs, out of Debian's packages, unpacked
# into a folder. The machine's own packages stay as they are and no root is needed: apt works with
# lists and a status of its own. Does nothing, and needs no network, when the folder is there.
#
#   scripts/sysroot.sh ARCHITECTURE FOLDER       the first as Debian calls it, such as arm64
set -eu

architecture=$1
folder=$2
packages='libpcre2-dev libutf8proc-dev libjansson-dev libedit-dev libcmocka-dev'

[ ! -e "$folder" ] || exit 0

for tool in apt-get dpkg-deb; do
    if ! command -v $tool >/dev/null 2>&1; then
        echo "sysroot: no $tool here, and so no way to Debian's packages for $architecture" >&2
        exit 1
    fi
done

mkdir -p "$(dirname "$folder")"
tmp=$(mktemp -d "$folder.XXXXXX")
trap 'rm -rf "$tmp"' EXIT
tmp=$(realpath "$tmp")
mkdir -p "$tmp/lists/partial" "$tmp/archives/partial" "$tmp/root"

# A system on which nothing is installed: apt finds all that the packages need.
apt() {
    apt-get -qq -o APT::Architecture="$architecture" -o APT::Architectures="$architecture" \
        -o Acquire::Languages=none -o Dir::State="$tmp" -o Dir::State::status=/dev/null \
        -o Dir::Cache="$tmp" -o Debug::NoLocking=1 -o APT::Sandbox::User="$(id -un)" \
        "$@" </dev/null >"$tmp/log" 2>&1
}
echo "sysroot: fetching libraries for $architecture"
# shellcheck disable=SC2086 # a list of package names
if ! apt update || ! apt install -y --download-only --no-install-recommends $packages; then
    tail -n 5 "$tmp/log" >&2
    echo "sysroot: apt-get could not fetch for $architecture: $packages" >&2
    exit 1
fi
for package in "$tmp"/archives/*.deb; do
    dpkg-deb -x "$package" "$tmp/root"
done

# Links that start at the root lead into the folder instead.
find "$tmp/root" -type l -lname '/*' | while read -r link; do
    target=$tmp/root$(readlink "$link")
    ln -sfn "$(realpath -m --relative-to="$(dirname "$link")" "$target")" "$link"
done
mv "$tmp/root" "$folder"
