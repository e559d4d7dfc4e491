#!/usr/bin/env python3
"""bench/make_moe.py and bench/slice_experts.py: their files are what they say, and run.

    test_generators.py PROGRAM MODELS BENCH PACKAGES

MODELS is tests/data/models, PACKAGES a folder in which the package gguf may be. The scripts run on
this Python or the system's, whichever has the packages numpy and gguf. Skipped (77) where none has.
"""

import array
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

PROGRAM, MODELS, BENCH, PACKAGES = (os.path.abspath(a) for a in sys.argv[1:5])
del sys.argv[1:5]
PYTHON = None
VERSIONS = """
import importlib.metadata, gguf, numpy
print(numpy.__version__, importlib.metadata.version("gguf"))
"""


def run(*args):
    env = {k: v for k, v in os.environ.items() if not k.startswith("PN_")}
    env["PYTHONPATH"] = os.pathsep.join([PACKAGES, env.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    with tempfile.TemporaryDirectory() as state:
        env["XDG_STATE_HOME"] = state
        done = subprocess.run(args, capture_output=True, env=env, timeout=120)
    if done.returncode:
        raise AssertionError(done.stderr.decode())
    return done.stdout


def script(name, *args):
    return run(PYTHON, os.path.join(BENCH, name), *args)


class Generators(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.dir)
        self.out = os.path.join(self.dir, "out.gguf")

    def inspect(self):
        return json.loads(run(PROGRAM, "inspect", self.out, "--json"))

    def rows(self, model):
        path = os.path.join(self.dir, "rows.f32")
        run(PROGRAM, "logits", model, "--tokens", "1,2,3,40,50,60", "--out", path)
        values = array.array("f")
        with open(path, "rb") as f:
            values.frombytes(f.read())
        return values

    def test_make(self):
        size = "--layers 5 --experts 16 --used 4 --embd 256 --ff 256 --heads 4 --kv-heads 2"
        types = "Q4_K:Q4_K,Q4_K:Q6_K,Q8_0:F16,Q4_0:Q4_0"
        more = ["--vocab", "512", "--tokens", "64", "--types", types]
        script("make_moe.py", self.out, *size.split(), *more)
        told = self.inspect()
        self.assertIn("random weights", told["metadata"]["general.description"])
        self.assertEqual(told["experts"]["count"], 16)
        self.assertEqual(told["experts"]["used"], 4)
        self.assertEqual(told["experts"]["blocks"], 5)
        kinds = {t["name"]: t["type"] for t in told["tensors"]}
        self.assertEqual(kinds["blk.1.ffn_down_exps.weight"], "Q6_K")
        self.assertEqual(kinds["blk.2.ffn_down_exps.weight"], "F16")
        self.assertEqual(kinds["blk.4.ffn_up_exps.weight"], "Q4_K")
        with open(self.out + ".tokens") as f:
            ids = [int(i) for i in f.read().split()]
        self.assertEqual(len(ids), 64)
        self.assertTrue(all(0 <= i < 512 for i in ids))
        self.assertTrue(all(abs(v) < 1e4 for v in self.rows(self.out)))

    def test_slice_whole(self):
        """With all slices used it is the dense model but for rounding."""
        dense = os.path.join(MODELS, "llama-gqa.gguf")
        script("slice_experts.py", dense, self.out, "--experts", "4")
        told = self.inspect()
        self.assertIn("slice_experts.py", told["metadata"]["general.description"])
        self.assertEqual(told["experts"]["used"], 4)
        want, got = self.rows(dense), self.rows(self.out)
        largest = max(abs(v) for v in want)
        self.assertEqual(len(want), len(got))
        # Weights are off by up to the router's size, 1e-3.
        self.assertLess(max(abs(a - b) for a, b in zip(want, got)), 5e-3 * largest)

    def test_slice_part(self):
        dense = os.path.join(MODELS, "llama-gqa.gguf")
        script("slice_experts.py", dense, self.out, "--experts", "8", "--used", "6")
        self.assertEqual(self.inspect()["experts"]["used"], 6)
        self.assertTrue(all(abs(v) < 1e4 for v in self.rows(self.out)))


if __name__ == "__main__":
    for PYTHON in dict.fromkeys((sys.executable, "/usr/bin/python3")):
        try:
            numpy, gguf = run(PYTHON, "-c", VERSIONS).decode().split()
        except (AssertionError, OSError) as error:
            print(f"{PYTHON}: {str(error).strip().splitlines()[-1]}")
            continue
        print(f"{PYTHON}: numpy {numpy}, gguf {gguf}")
        break
    else:
        print("skipped: no Python with the packages numpy and gguf (scripts/python_gguf.sh)")
        sys.exit(77)
    unittest.main()
