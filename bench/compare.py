#!/usr/bin/env python3
"""Speed of pannier beside llama.cpp: the same files, tokens and threads, in turn, in one run.

usage: bench/compare.py --pannier build/release/pannier --peer DIR --forced FILE.c --work DIR
                        [--include DIR ...] [--threads 2] [--runs 3] [--types q4_0,q8_0,...]
                        [--streams 1,4,16] [--prompt 512] [--predict 64] [--json FILE]

--peer     folder of a llama.cpp build: libllama.so, libggml*.so, llama-quantize
--include  its headers (llama.h, ggml.h), where the compiler doesn't find them
--forced   peer_forced.c: feeds llama.cpp a file of tokens
--work     where models are: dense-f16.gguf (722 M weights of a llama, made by make_dense.py) has to
           be there; its quantised copies are made with the peer's tool and kept

Each figure is the median of --runs runs; the two programs take turns, so a machine that changes its
speed changes it for both. Prints a Markdown table; ratio is pannier / peer.
"""
import argparse
import json
import pathlib
import random
import statistics
import subprocess
import sys


def arguments():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--pannier", required=True, type=pathlib.Path)
    p.add_argument("--peer", required=True, type=pathlib.Path)
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
    return p.parse_args()


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


def last_json(command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"compare: {command[0]}: {done.stderr.strip().splitlines()[-1:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def ours(a, path, ids, streams):
    return last_json([a.pannier, "bench", path, "-p", a.prompt, "-n", a.predict, "-t", a.threads,
                      "--streams", streams, "--tokens", ids, "--json"])


def peers(a, forced, path, ids, streams):
    return last_json([forced, path, ids, a.prompt, a.predict, streams, 1, a.threads])


def spread(values):
    return f"{statistics.median(values):.1f} ({min(values):.1f}-{max(values):.1f})"


def main():
    a = arguments()
    forced = build_forced(a)
    ids = tokens(a)
    rows = []
    print(f"{a.threads} threads, prompt {a.prompt}, {a.predict} decoded, median of {a.runs} "
          f"(min-max), tok/s over all streams\n")
    print("| weights | streams | prompt: pannier | peer | ratio | decode: pannier | peer | ratio "
          "| share of DRAM read |")
    print("|---|---|---|---|---|---|---|---|---|")
    for kind in a.types.split(","):
        path = model(a, kind)
        for streams in a.streams.split(","):
            us, them = [], []
            for _ in range(a.runs):
                us.append(ours(a, path, ids, streams))
                them.append(peers(a, forced, path, ids, streams))
            row = {"weights": kind, "streams": int(streams), "isa": us[0]["isa"]}
            cells = [kind.upper(), streams]
            for what in ("prefill_tok_s", "decode_tok_s"):
                mine = [u[what] for u in us]
                other = [t[what] for t in them]
                ratio = statistics.median(mine) / statistics.median(other)
                row[what] = {"pannier": mine, "peer": other, "ratio": ratio}
                cells += [spread(mine), spread(other), f"**{ratio:.2f}**"]
            cells.append(f"{statistics.median(u['dram_share'] for u in us):.0%}")
            rows.append(row)
            print("| " + " | ".join(cells) + " |", flush=True)
    if a.json:
        a.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
