#!/usr/bin/env python3
"""No wide instructions in objects that every x86-64 processor must be able to run.

Reads a build's compile_commands.json, disassembles each object of src/ that was compiled without
instruction-set flags, and looks for AVX (every VEX or EVEX instruction's name starts with v) and
BMI. One such instruction ends the program on a processor without it. Exit 77: not an x86-64 build.
"""

import argparse
import json
import os
import re
import shlex
import subprocess
import sys

ISA_FLAG = re.compile(r"^-m(?!tune)(avx|fma|f16c|bmi|arch=|sse[34]|ssse3|lzcnt|popcnt|amx)")
WIDE = re.compile(
    r"%[yzt]mm\d"
    r"|\t(v(?!err|erw|mcall|mlaunch)\w+|andn|bextr|bzhi|mulx|pdep|pext|rorx|sarx|shlx|shrx)\b")


def objects(build, root):
    """Objects of src/ compiled for the baseline."""
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as f:
        commands = json.load(f)
    source_root = os.path.realpath(os.path.join(root, "src")) + os.sep
    for command in commands:
        words = command.get("arguments") or shlex.split(command["command"])
        source = os.path.realpath(os.path.join(command["directory"], command["file"]))
        if source.startswith(source_root) and not any(ISA_FLAG.match(w) for w in words):
            yield os.path.join(command["directory"], words[words.index("-o") + 1])


def wide_instructions(path):
    """Lines of the disassembly that need more than the baseline."""
    result = subprocess.run(["objdump", "-d", "--no-show-raw-insn", path], check=True, text=True,
                            stdout=subprocess.PIPE)
    function = "?"
    for line in result.stdout.splitlines():
        if line.endswith(">:"):
            function = line.split("<")[1][:-2]
        elif WIDE.search(line):
            yield "%s: %s" % (function, line.split(":", 1)[1].strip())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build")
    parser.add_argument("--root", default=os.path.join(os.path.dirname(__file__), ".."))
    parser.add_argument("--machine", default=os.uname().machine)
    args = parser.parse_args()
    if args.machine != "x86_64":
        print("skipped: %s has no wide x86 instructions to leak" % args.machine)
        return 77
    checked = 0
    failed = False
    for path in objects(args.build, args.root):
        if not os.path.exists(path):
            continue
        checked += 1
        for n, line in enumerate(wide_instructions(path)):
            failed = True
            if n < 5:
                print("%s: %s" % (os.path.relpath(path, args.build), line))
    print("isa: %d baseline objects" % checked)
    if checked == 0:
        print("isa: no object to look at: is %s built?" % args.build)
    return 1 if failed or checked == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
