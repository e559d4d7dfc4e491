#!/usr/bin/env python3
"""Every C file is as clang-format 14 would write it (--fix: makes it so).

Other versions format differently, so the check asks for this one; exit 77 where it is missing.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys

import source_tree

VERSION = "14"


def formatter():
    for name in ("clang-format-" + VERSION, "clang-format"):
        path = shutil.which(name)
        if not path:
            continue
        said = subprocess.run([path, "--version"], stdout=subprocess.PIPE, text=True, check=False)
        if re.search(r"version %s\." % VERSION, said.stdout):
            return path
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", default=os.path.join(os.path.dirname(__file__), ".."))
    parser.add_argument("--fix", action="store_true")
    args = parser.parse_args()
    program = formatter()
    if not program:
        print("skipped: clang-format %s is not installed" % VERSION)
        return 77
    paths = source_tree.files(args.root, source_tree.C_SUFFIXES)
    mode = ["-i"] if args.fix else ["--dry-run", "-Werror"]
    result = subprocess.run([program, "--style=file"] + mode + paths, cwd=args.root, check=False)
    print("format: %d files%s" % (len(paths), "" if result.returncode == 0
                                  else " ('make format' mends them)"))
    return 1 if result.returncode else 0


if __name__ == "__main__":
    sys.exit(main())
