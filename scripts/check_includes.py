#!/usr/bin/env python3
"""Rooms include only rooms below them; public headers include only public headers.

A room is a folder of src/. The order is that of docs/ARCHITECTURE.md; rooms of the same rank do
not see each other. Prints each include that breaks a rule and exits with 1.
"""

import argparse
import os
import re
import sys

import source_tree

RANKS = {
    "base": 0, "core/mem": 1, "quant": 2, "gguf": 3, "ops": 4, "kv": 5, "spill": 5, "text": 6,
    "models": 7, "engine": 8, "serve": 9, "cli": 10,
}
# Who speaks the language of a public header: the room that implements it, and those above.
PUBLIC_RANKS = {"pn_err.h": 0, "pn_mem.h": 0, "pannier.h": RANKS["engine"]}
# Rooms that describe computation and must not know how a processor does it.
DEVICE_FREE = {"kv", "text", "models"}
DEVICE_FOLDERS = ("ops/cpu/", "ops/cuda/")

INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*([<\"])([^>\"\n]+)[>\"]", re.M)


def room_of(path):
    """The room that a path below src/ (or an include's text) belongs to, or None."""
    for room in sorted(RANKS, key=len, reverse=True):
        if path.startswith(room + "/"):
            return room
    return None


def includes(text):
    for match in INCLUDE.finditer(text):
        yield text.count("\n", 0, match.start()) + 1, match.group(1), match.group(2)


def check_room_file(root, path):
    below = path[len("src/"):]
    room = room_of(below)
    if room is None:
        yield 1, "is in no room (known: %s)" % " ".join(RANKS)
        return
    for line, bracket, target in includes(source_tree.read(root, path)):
        exists = os.path.exists(os.path.join(root, "src", target))
        target_room = room_of(target)
        if target.endswith(".c"):
            yield line, "includes a source file, '%s'" % target
        elif bracket == "<":
            if exists or target in PUBLIC_RANKS:
                yield line, "<%s> is ours: write it with quotes" % target
        elif target in PUBLIC_RANKS:
            if PUBLIC_RANKS[target] > RANKS[room]:
                yield line, "%s may not use '%s' from above it" % (room, target)
        elif target_room is None or not exists:
            yield line, "'%s' is not a file of a room (write \"room/file.h\")" % target
        elif target_room != room and RANKS[target_room] >= RANKS[room]:
            yield line, "%s may not use %s ('%s'): it is not below it" % (room, target_room, target)
        elif room in DEVICE_FREE and target.startswith(DEVICE_FOLDERS):
            yield line, "%s may not know the device ('%s')" % (room, target)


def check_public_file(root, path):
    for line, bracket, target in includes(source_tree.read(root, path)):
        if bracket == '"' and target not in PUBLIC_RANKS:
            yield line, "a public header includes '%s', which is not public" % target
        if bracket == "<" and "/" in target and not target.startswith("sys/"):
            yield line, "a public header includes <%s>: plain C types only" % target


def check_test_file(root, path):
    for line, _, target in includes(source_tree.read(root, path)):
        if target.endswith(".c"):
            yield line, "a test includes a source file, '%s'" % target


def check(root):
    """All breaches as 'path:line: text'."""
    found = []
    for path in source_tree.files(root, source_tree.C_SUFFIXES):
        if path.startswith("src/"):
            breaches = check_room_file(root, path)
        elif path.startswith("include/"):
            breaches = check_public_file(root, path)
        else:
            breaches = check_test_file(root, path)
        found += ["%s:%d: %s" % (path, line, text) for line, text in breaches]
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", default=os.path.join(os.path.dirname(__file__), ".."))
    found = check(parser.parse_args().root)
    print("\n".join(found) if found else "includes: every arrow points down")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
