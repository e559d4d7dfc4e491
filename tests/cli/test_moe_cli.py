#!/usr/bin/env python3
"""What the program says about mixtures of experts: inspect, and run --trace.

    test_moe_cli.py PROGRAM MODELS

MODELS is tests/data/models.
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest

PROGRAM = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 2 else ""
MODELS = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else ""


def model(name):
    return os.path.join(MODELS, name + ".gguf")


def run(*args):
    env = {k: v for k, v in os.environ.items() if not k.startswith("PN_")}
    with tempfile.TemporaryDirectory() as state:
        env["XDG_STATE_HOME"] = state
        return subprocess.run([PROGRAM, *args], capture_output=True, env=env, timeout=60)


def inspect(name):
    return json.loads(run("inspect", model(name), "--json").stdout)


class Inspect(unittest.TestCase):
    def test_counts(self):
        """Every figure from the tensors themselves, of a file with blocks that don't run too."""
        for name, count, used, blocks in (
            ("qwen3moe", 16, 3, 3),
            ("olmoe", 16, 4, 3),
            ("llama-moe", 8, 2, 3),
            ("qwen35moe-mtp", 8, 3, 4),
        ):
            told = inspect(name)
            e = told["experts"]
            self.assertEqual((e["count"], e["used"], e["blocks"]), (count, used, blocks))
            run_here = [
                t
                for t in told["tensors"]
                if not t["name"].startswith("blk.") or int(t["name"].split(".")[1]) < blocks
            ]
            experts = sum(t["bytes"] for t in run_here if "_exps." in t["name"])
            rest = sum(
                t["bytes"]
                for t in run_here
                if "_exps." not in t["name"] and t["name"] != "token_embd.weight"
            )
            self.assertEqual(e["bytes"], experts)
            self.assertEqual(e["expert_bytes_min"], experts // (count * blocks))
            self.assertEqual(e["expert_bytes_max"], e["expert_bytes_min"])
            self.assertEqual(e["token_bytes"], rest + experts * used // count)

    def test_text(self):
        text = run("inspect", model("qwen3moe")).stdout.decode()
        self.assertIn("16, 3 a token, in 3 of 3 blocks", text)
        self.assertIn("an expert      9216 bytes", text)
        self.assertIn("a token reads  205056 bytes", text)

    def test_dense(self):
        self.assertIsNone(inspect("qwen3")["experts"])
        self.assertNotIn(b"an expert", run("inspect", model("qwen3")).stdout)


class Trace(unittest.TestCase):
    def trace(self, *args):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "trace.tsv")
            flags = ["--raw", "-n", "3", "--temp", "0", "--trace", path]
            done = run("run", model("qwen3moe"), *flags, *args)
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(path) as f:
                lines = f.read().splitlines()
        self.assertTrue(lines[0].startswith("# step\tlayer\texperts"))
        rows = {}
        for line in lines[1:]:
            step, layer, experts = line.split("\t")
            rows[int(step), int(layer)] = [int(e) for e in experts.split(",")]
        self.assertEqual(len(rows), len(lines) - 1)
        return rows

    def test_format(self):
        rows = self.trace("-p", "hello you")
        # The last token is handed out, not computed.
        self.assertEqual(sorted(rows), [(s, i) for s in range(3) for i in range(3)])
        for (step, _), experts in rows.items():
            self.assertEqual(len(set(experts)), len(experts))
            self.assertTrue(all(0 <= e < 16 for e in experts))
            if step:
                self.assertEqual(len(experts), 3)
        self.assertGreater(len(rows[0, 0]), 3)

    def test_chunks_make_no_difference(self):
        whole = self.trace("-p", "hello you")
        self.assertEqual(self.trace("-p", "hello you", "--chunk", "1"), whole)
        self.assertEqual(self.trace("-p", "hello you", "--threads", "1"), whole)

    def test_refusals(self):
        flags = ["--raw", "-p", "a", "-n", "2", "--trace"]
        done = run("run", model("qwen3"), *flags, "/dev/null")
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"no experts", done.stderr)
        done = run("run", model("qwen3moe"), *flags, "/nosuch/t")
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"/nosuch/t", done.stderr)
        if os.path.exists("/dev/full"):
            done = run("run", model("qwen3moe"), *flags, "/dev/full")
            self.assertEqual(done.returncode, 1)
            self.assertIn(b"/dev/full", done.stderr)


if __name__ == "__main__":
    unittest.main()
