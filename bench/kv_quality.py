#!/usr/bin/env python3
"""What a format of the KV cache changes: KL divergence and top-1 agreement against another format.

usage: bench/kv_quality.py [--pannier build/release/pannier] [--kv q4] [--base f16] [--seqs 4]
                           [--lengths 1,63,64,65,1000] [--text FILE ...] [--json] MODEL ...

Every prompt is computed in both formats. A line shows, over the last 64 positions (all, where there
are fewer) of all prompts of one length: mean and largest KL(base || kv) in nats, and in how many of
them the likeliest token is the same. Sixty-four positions in a row stand once in each place of a
page. Prompts are pseudo-random ids; with --text the files' tokens, one prompt a file, which is what
a trained model should be asked. Plain Python: a vocabulary of 50,000 takes a minute a length.
"""
import argparse
import array
import json
import math
import pathlib
import subprocess
import sys
import tempfile

TAIL = 64


def arguments():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("models", nargs="+", type=pathlib.Path, metavar="MODEL")
    p.add_argument("--pannier", default="build/release/pannier", type=pathlib.Path)
    p.add_argument("--kv", default="q4")
    p.add_argument("--base", default="f16")
    p.add_argument("--seqs", type=int, default=4)
    p.add_argument("--lengths", default="1,63,64,65,1000")
    p.add_argument("--text", action="append", default=[], type=pathlib.Path)
    p.add_argument("--json", action="store_true")
    return p.parse_args()


def run(command, text=None):
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))[:200]}: {done.stderr.strip()}")
    return done.stdout


def vocabulary(pannier, model):
    for tensor in json.loads(run([pannier, "inspect", model, "--json"]))["tensors"]:
        if tensor["name"] == "token_embd.weight":
            return tensor["dims"][1]
    sys.exit(f"{model}: no token_embd.weight")


def random_ids(vocab, n, seed):
    """Ids above the control tokens, by a linear congruence: the same everywhere."""
    x, ids = seed, []
    for _ in range(n):
        x = (x * 6364136223846793005 + 1442695040888963407) % 2**64
        ids.append(3 + (x >> 33) % (vocab - 3))
    return ids


def prompts(args, model, vocab, longest):
    if not args.text:
        return [random_ids(vocab, longest, i + 1) for i in range(args.seqs)]
    out = []
    for path in args.text:
        ids = run([args.pannier, "tokenize", model], path.read_text(encoding="utf-8")).split()
        if len(ids) < longest:
            sys.exit(f"{path}: {len(ids)} tokens, {longest} are needed")
        out.append([int(i) for i in ids[:longest]])
    return out


def last_rows(args, model, ids, kv, folder):
    path = folder / "rows"
    run([args.pannier, "logits", model, "--tokens", ",".join(map(str, ids)), "--kv", kv,
         "--ctx", str(len(ids) + 1), "--log", "error", "--out", path])
    vocab = path.stat().st_size // 4 // len(ids)
    rows = []
    with open(path, "rb") as f:
        first = max(0, len(ids) - TAIL)
        f.seek(first * vocab * 4)
        for _ in range(first, len(ids)):
            row = array.array("f")
            row.fromfile(f, vocab)
            rows.append(row)
    path.unlink()
    return rows


def log_sum(row):
    top = max(row)
    return top + math.log(sum(map(math.exp, (x - top for x in row))))


def kl(p, q):
    lp, lq = log_sum(p), log_sum(q)
    return sum(math.exp(a - lp) * ((a - lp) - (b - lq)) for a, b in zip(p, q))


def measure(args, model, ids, folder):
    base = last_rows(args, model, ids, args.base, folder)
    other = last_rows(args, model, ids, args.kv, folder)
    return [(kl(p, q), p.index(max(p)) == q.index(max(q))) for p, q in zip(base, other)]


def main():
    args = arguments()
    lengths = [int(n) for n in args.lengths.split(",")]
    results = []
    if not args.json:
        print(f"| model | tokens | mean KL | largest KL | top-1 |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        for model in args.models:
            texts = prompts(args, model, vocabulary(args.pannier, model), max(lengths))
            for n in lengths:
                rows = [r for ids in texts for r in measure(args, model, ids[:n],
                                                            pathlib.Path(name))]
                mean = sum(r[0] for r in rows) / len(rows)
                line = {"model": model.stem, "tokens": n, "kl": mean,
                        "kl_max": max(r[0] for r in rows),
                        "top1": sum(r[1] for r in rows) / len(rows), "rows": len(rows)}
                results.append(line)
                if not args.json:
                    print(f"| {line['model']} | {n} | {mean:.5f} | {line['kl_max']:.4f} "
                          f"| {100 * line['top1']:.1f} % |", flush=True)
    if args.json:
        print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
