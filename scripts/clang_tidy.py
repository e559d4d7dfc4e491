#!/usr/bin/env python3
"""Runs clang-tidy over src/, and only over what changed since it last passed.

A file is known as clean by a hash of itself, of every header of the project and of the
configuration; the hashes are kept in the build folder. Exit 77 where clang-tidy is missing.
"""

import argparse
import concurrent.futures
import hashlib
import json
import os
import shutil
import subprocess
import sys

import source_tree


def sources(build, root):
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as f:
        commands = json.load(f)
    source_root = os.path.realpath(os.path.join(root, "src")) + os.sep
    paths = {os.path.realpath(os.path.join(c["directory"], c["file"])): c["command"]
             for c in commands}
    return {p: c for p, c in sorted(paths.items()) if p.startswith(source_root)}


def digest(*parts):
    h = hashlib.sha256()
    for part in parts:
        h.update(part.encode() + b"\0")
    return h.hexdigest()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build")
    parser.add_argument("--root", default=os.path.join(os.path.dirname(__file__), ".."))
    args = parser.parse_args()
    program = shutil.which("clang-tidy") or shutil.which("clang-tidy-14")
    if not program:
        print("skipped: clang-tidy is not installed")
        return 77

    headers = [source_tree.read(args.root, p) for p in source_tree.files(args.root, (".h",))]
    shared = digest(source_tree.read(args.root, ".clang-tidy"), *headers)
    clean_path = os.path.join(args.build, "clang-tidy-clean.json")
    clean = {}
    if os.path.exists(clean_path):
        with open(clean_path, encoding="utf-8") as f:
            clean = json.load(f)

    todo = {}
    for path, command in sources(args.build, args.root).items():
        with open(path, encoding="utf-8") as f:
            key = digest(shared, command, f.read())
        if clean.get(path) != key:
            todo[path] = key

    def run(path):
        return path, subprocess.run([program, "--quiet", "-p", args.build, path], text=True,
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)

    failed = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for path, result in pool.map(run, todo):
            if result.returncode == 0:
                clean[path] = todo[path]
                continue
            failed += 1
            print(result.stdout + result.stderr)
    with open(clean_path, "w", encoding="utf-8") as f:
        json.dump(clean, f)
    print("clang-tidy: %d files looked at, %d with findings" % (len(todo), failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
