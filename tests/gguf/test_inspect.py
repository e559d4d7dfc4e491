"""`pannier inspect` on files made here: its text and its JSON, hostile strings included."""

import json
import os
import struct
import subprocess
import sys
import tempfile
import unittest

PANNIER = ""

STRING, ARRAY, BOOL, U32, I32, F32, U64, F64 = 8, 9, 7, 4, 5, 6, 10, 12


def text(data):
    data = data.encode() if isinstance(data, str) else data
    return struct.pack("<Q", len(data)) + data


def key(name, kind, value):
    return text(name) + struct.pack("<I", kind) + value


def strings(items):
    return struct.pack("<IQ", STRING, len(items)) + b"".join(text(i) for i in items)


def gguf(keys, tensors):
    """tensors: (name, type, dims, bytes), laid out at the alignment of 32."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys)) + b"".join(keys)
    data = b""
    for name, kind, dims, raw in tensors:
        head += text(name) + struct.pack("<I", len(dims))
        head += b"".join(struct.pack("<Q", n) for n in dims)
        head += struct.pack("<IQ", kind, len(data))
        data += raw + bytes(-len(raw) % 32)
    return head + bytes(-len(head) % 32) + data


KEYS = [
    key("general.architecture", STRING, text("llama")),
    key("general.name", STRING, text("Tiny")),
    key("llama.context_length", U32, struct.pack("<I", 4096)),
    key("llama.eps", F32, struct.pack("<f", 0.5)),
    key("negative", I32, struct.pack("<i", -3)),
    key("huge", U64, struct.pack("<Q", 2**64 - 1)),
    key("nan", F64, struct.pack("<d", float("nan"))),
    key("flag", BOOL, b"\x01"),
    key("words", ARRAY, strings(["w%d" % i for i in range(1000)])),
    key("hostile", STRING, text(b"a\x1b[2Jb\nc\x9b\xc2\x9bd\xff\"\\")),
]
TENSORS = [
    ("token_embd.weight", 0, [32, 4], bytes(512)),
    ("blk.0.w", 2, [64, 2], bytes(72)),
    ("blk.1.w", 2, [64, 2], bytes(72)),
]


class Inspect(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.TemporaryDirectory()
        self.addCleanup(self.dir.cleanup)

    def file(self, name, data):
        path = os.path.join(self.dir.name, name)
        with open(path, "wb") as f:
            f.write(data)
        return path

    def inspect(self, *args):
        run = subprocess.run([PANNIER, "inspect", *args], capture_output=True, timeout=60)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(run.stderr, b"")
        return run.stdout

    def test_text(self):
        data = gguf(KEYS, TENSORS)
        path = self.file("model.gguf", data)
        out = self.inspect(path).decode()
        rows = {line.split()[0]: line.split()[1:] for line in out.splitlines() if line.strip()}
        self.assertEqual(rows["architecture"], ["llama"])
        self.assertEqual(rows["name"], ["Tiny"])
        self.assertEqual(rows["parameters"], ["384"])
        self.assertEqual(rows["context"], ["4096", "tokens"])
        self.assertEqual(rows["format"], ["GGUF", "version", "3"])
        self.assertEqual(rows["file"][:3], [path + ",", str(len(data)), "bytes"])
        self.assertEqual(rows["F32"], ["1", "512"])
        self.assertEqual(rows["Q4_0"], ["2", "144"])
        self.assertEqual(rows["all"], ["3", "656"])
        self.assertIn('words = ["w0", "w1", "w2", "w3", "w4", "w5", ...] (1000 of string)', out)
        self.assertIn("negative = -3\n", out)
        self.assertIn("huge = 18446744073709551615\n", out)
        self.assertIn("flag = true\n", out)
        self.assertIn("llama.eps = 0.5\n", out)
        self.assertIn("blk.1.w  Q4_0 [64, 2]  72 bytes at ", out)

    def test_hostile_text(self):
        out = self.inspect(self.file("model.gguf", gguf(KEYS, TENSORS)))
        self.assertIn(rb'hostile = "a\x1b[2Jb\nc\x9b\xc2\x9bd\xff\"\\"' + b"\n", out)
        for char in out.decode():
            self.assertTrue(char == "\n" or char.isprintable(), repr(char))

    def test_json(self):
        data = gguf(KEYS, TENSORS)
        path = self.file("model.gguf", data)
        out = json.loads(self.inspect(path, "--json"))
        self.assertEqual(out["architecture"], "llama")
        self.assertEqual(out["name"], "Tiny")
        self.assertEqual(out["files"], [{"path": path, "bytes": len(data)}])
        self.assertEqual((out["bytes"], out["tensor_bytes"]), (len(data), 656))
        self.assertEqual((out["version"], out["parameters"], out["context_length"]), (3, 384, 4096))
        self.assertEqual(out["types"], {"F32": {"tensors": 1, "bytes": 512},
                                        "Q4_0": {"tensors": 2, "bytes": 144}})
        meta = out["metadata"]
        self.assertEqual(len(meta), len(KEYS))
        self.assertEqual(meta["words"], ["w%d" % i for i in range(1000)])
        self.assertEqual(meta["hostile"], "a\x1b[2Jb\nc\ufffd\x9bd\ufffd\"\\")
        self.assertEqual((meta["huge"], meta["nan"]), (str(2**64 - 1), "NaN"))
        self.assertEqual((meta["negative"], meta["flag"], meta["llama.eps"]), (-3, True, 0.5))
        self.assertEqual([t["name"] for t in out["tensors"]], [t[0] for t in TENSORS])
        row = out["tensors"][1]
        self.assertEqual((row["type"], row["dims"], row["bytes"], row["file"]),
                         ("Q4_0", [64, 2], 72, 0))
        self.assertEqual(row["offset"], out["tensors"][0]["offset"] + 512)

    def test_vocabulary_only(self):
        """Any architecture, no tensors, no name: still inspected."""
        path = self.file("vocab.gguf", gguf([key("general.architecture", STRING, text("nosuch"))],
                                            []))
        self.assertIn(b"nosuch", self.inspect(path))
        out = json.loads(self.inspect("--json", path))
        self.assertEqual((out["architecture"], out["name"], out["context_length"]),
                         ("nosuch", None, None))
        self.assertEqual((out["tensors"], out["parameters"]), ([], 0))

    def test_refused(self):
        path = self.file("bad.gguf", gguf(KEYS, TENSORS)[:-64])
        run = subprocess.run([PANNIER, "inspect", path], capture_output=True, timeout=60)
        self.assertEqual((run.returncode, run.stdout), (1, b""))
        self.assertIn(b"'blk.1.w'", run.stderr)
        self.assertEqual(run.stderr.count(b"\n"), 1)


if __name__ == "__main__":
    PANNIER = sys.argv.pop(1)
    unittest.main()
