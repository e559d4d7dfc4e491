#!/usr/bin/env python3
"""The program as a user meets it: exit codes, and one clear line for every kind of bad input.

    test_cli.py PROGRAM MODEL [unittest arguments]

MODEL is a small whole llama model with an SPM vocabulary; broken files are made from it.
"""

import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

PROGRAM = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 2 else ""
MODEL = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else ""

DONE, ERROR, USAGE, NOFIT = 0, 1, 2, 3
VOCAB = 320
MODEL_COMMANDS = {
    "run": ["--raw", "-p", "a", "-n", "2", "--temp", "0"],
    "logits": ["--tokens", "1,2,3", "--out", "OUT"],
    "bench": ["-p", "8", "-n", "2"],
    "plan": [],
    "inspect": [],
    "tokenize": [],
}


def patched(data, old, new, count=1):
    assert len(old) == len(new) and data.count(old) >= 1, old
    return data.replace(old, new, count)


def gguf_string(text):
    return struct.pack("<Q", len(text)) + text.encode()


class Cli(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.dir)
        self.state = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.state)
        self.out = os.path.join(self.dir, "rows.f32")
        with open(MODEL, "rb") as f:
            self.good = f.read()

    def file(self, name, data):
        path = os.path.join(self.dir, name)
        with open(path, "wb") as f:
            f.write(data)
        return path

    def run_program(self, *args, stdin=b"", env=None, stdout=subprocess.PIPE):
        clean = {k: v for k, v in os.environ.items() if not k.startswith("PN_")}
        # Another run's last snapshot, in the user's folder, is none of this test's business.
        clean["XDG_STATE_HOME"] = self.state
        clean.update(env or {})
        args = [self.out if a == "OUT" else a for a in args]
        result = subprocess.run([PROGRAM, *args], input=stdin, stdout=stdout,
                                stderr=subprocess.PIPE, env=clean, timeout=120, check=False)
        result.err = result.stderr.decode()
        self.assertNotIn("Sanitizer", result.err)
        return result

    def refused(self, code, says, *args, **kwargs):
        """The command ends with `code`, one line on stderr with all of `says`, and no result."""
        result = self.run_program(*args, **kwargs)
        self.assertEqual(result.returncode, code, (args, result.err, result.stdout))
        self.assertRegex(result.err, r"\Apannier: [^\n]+\n\Z", args)
        for text in [says] if isinstance(says, str) else says:
            self.assertIn(text, result.err, args)
        if result.stdout is not None:
            self.assertEqual(result.stdout, b"", args)
        self.assertFalse(os.path.exists(self.out), args)
        return result.err

    def done(self, *args, **kwargs):
        result = self.run_program(*args, **kwargs)
        self.assertEqual(result.returncode, DONE, (args, result.err))
        return result

    def all_commands(self, path):
        for command, args in MODEL_COMMANDS.items():
            yield [command, path, *args]


class Typed(Cli):
    """What was typed is wrong: exit code 2."""

    def test_nothing(self):
        result = self.run_program()
        self.assertEqual(result.returncode, USAGE)
        self.assertEqual(result.stdout, b"")
        self.assertIn("usage: pannier COMMAND", result.err)

    def test_command(self):
        self.refused(USAGE, "unknown command 'frobnicate'", "frobnicate", MODEL)
        self.refused(USAGE, "did you mean 'tokenize'", "tokenise", MODEL)
        self.refused(USAGE, "the command comes first", "--threads", "2", "run", MODEL)
        self.refused(USAGE, "unknown command 'x'", "help", "x")

    def test_model_argument(self):
        for command in MODEL_COMMANDS:
            self.refused(USAGE, "no model given", command)
            self.refused(USAGE, "unexpected argument 'more'", command, MODEL, "more")

    def test_flags(self):
        for command in MODEL_COMMANDS:
            self.refused(USAGE, "unknown flag '--qqqqqq'", command, MODEL, "--qqqqqq")
            self.refused(USAGE, "unknown flag '-Z'", command, MODEL, "-Z")
        self.refused(USAGE, "did you mean --threads", "run", MODEL, "--treads", "2")
        self.refused(USAGE, "is a flag of 'logits', not of 'run'", "run", MODEL, "--greedy", "2")
        self.refused(USAGE, "--json takes no value", "run", MODEL, "--json=yes")
        self.refused(USAGE, "--prompt needs a value", "run", MODEL, "--prompt")
        self.refused(USAGE, "-n is given twice", "run", MODEL, "-n", "2", "-n", "3")

    def test_values(self):
        self.refused(USAGE, ["--kv", "'q3'", "f32|f16|q8_0"], "run", MODEL, "--kv", "q3")
        self.refused(USAGE, ["--threads", "'-1'", "from 0 to 256"], "run", MODEL, "--threads", "-1")
        self.refused(USAGE, ["-n", "'many'", "a whole number"], "run", MODEL, "-n", "many")
        self.refused(USAGE, ["--temp", "'nan'", "a number"], "run", MODEL, "--temp", "nan")
        self.refused(USAGE, ["--chunk", "'0'", "from 1"], "logits", MODEL, "--chunk", "0")

    def test_environment(self):
        self.refused(USAGE, ["PN_THREADS", "'lots'"], "plan", MODEL, env={"PN_THREADS": "lots"})
        result = self.done("inspect", MODEL, env={"PN_THRAEDS": "2"})
        self.assertIn("'PN_THRAEDS' is not a setting", result.err)
        self.assertIn("did you mean PN_THREADS?", result.err)

    def test_needed_flags(self):
        self.refused(USAGE, "--out", "logits", MODEL, "--tokens", "1,2")
        self.refused(USAGE, "--tokens", "logits", MODEL, "--out", "OUT")

    def test_token_lists(self):
        for tokens in ["", "1,,2", "1,x", "1 2", "1,2,", "-1", "99999999999999999999"]:
            self.refused(USAGE, "--tokens", "logits", MODEL, "--tokens", tokens, "--out", "OUT")


class Help(Cli):
    def test_help(self):
        for args in [["--help"], ["help"], ["-h"]]:
            text = self.done(*args).stdout.decode()
            for command in MODEL_COMMANDS:
                self.assertRegex(text, r"(?m)^  %s " % command)
            self.assertIn("PN_THREADS", text)
        for command in MODEL_COMMANDS:
            text = self.done("help", command).stdout
            self.assertEqual(text, self.done(command, "--help").stdout)
            self.assertIn(b"usage: pannier " + command.encode(), text)

    def test_version(self):
        self.assertRegex(self.done("--version").stdout.decode(), r"\Apannier \d+\.\d+\.\d+\n\Z")

    def test_settings(self):
        text = self.done("plan", "--settings", "--ctx", "77",
                         env={"PN_THREADS": "3"}).stdout.decode()
        self.assertRegex(text, r"(?m)^ctx +77 +flag$")
        self.assertRegex(text, r"(?m)^threads +3 +environment$")
        self.assertRegex(text, r"(?m)^chunk +512 +default$")


class Files(Cli):
    """The model file is not what it should be: exit code 1, the file named."""

    def test_missing(self):
        path = os.path.join(self.dir, "nothing.gguf")
        for args in self.all_commands(path):
            self.refused(ERROR, [path, "no such file"], *args)

    def test_directory(self):
        for args in self.all_commands(self.dir):
            self.refused(ERROR, [self.dir, "folder"], *args)

    def test_empty(self):
        path = self.file("empty.gguf", b"")
        for args in self.all_commands(path):
            self.refused(ERROR, [path, "empty"], *args)

    def test_html(self):
        path = self.file("page.gguf", b"<!DOCTYPE html>\n<html><body>404</body></html>\n" * 20)
        for args in self.all_commands(path):
            self.refused(ERROR, [path, "HTML"], *args)

    def test_other_file(self):
        path = self.file("noise.gguf", bytes(range(256)) * 8)
        for args in self.all_commands(path):
            self.refused(ERROR, [path, "GGUF"], *args)

    def test_unreadable_characters_in_the_name(self):
        path = os.path.join(self.dir, "a\nb\x1b[31m.gguf")
        self.refused(ERROR, "no such file", "inspect", path)

    def test_truncated(self):
        """Wherever the file ends, it is refused, by every command that reads that far."""
        size = len(self.good)
        for cut in [3, 4, 8, 20, 24, 100, 5000, size // 2, size - 1]:
            path = self.file("cut.gguf", self.good[:cut])
            for args in self.all_commands(path):
                self.refused(ERROR, path, *args)

    def test_unknown_architecture(self):
        arch = gguf_string("general.architecture") + struct.pack("<I", 8)
        path = self.file("arch.gguf", patched(self.good, arch + gguf_string("llama"),
                                              arch + gguf_string("lluma")))
        for command in ["run", "logits", "bench", "plan"]:
            said = self.refused(ERROR, "'lluma'", command, path, *MODEL_COMMANDS[command])
            self.assertIn("llama", said.replace("lluma", ""))  # what would work
        # These two need no model that we can run.
        self.done("inspect", path)
        self.assertEqual(self.done("tokenize", path, stdin=b"ab").stdout,
                         self.done("tokenize", MODEL, stdin=b"ab").stdout)

    def test_missing_metadata(self):
        path = self.file("key.gguf", patched(self.good, gguf_string("llama.block_count"),
                                             gguf_string("llama.block_kount")))
        for command in ["run", "logits", "bench", "plan"]:
            self.refused(ERROR, "llama.block_count", command, path, *MODEL_COMMANDS[command])

    def test_missing_tensor(self):
        path = self.file("tensor.gguf", patched(self.good, b"blk.1.attn_q.weight",
                                                b"blk.1.attn_Q.weight"))
        for command in ["run", "logits", "bench", "plan"]:
            self.refused(ERROR, "blk.1.attn_q.weight", command, path, *MODEL_COMMANDS[command])

    def test_unknown_tensor_type(self):
        info = gguf_string("output.weight") + struct.pack("<IQQ", 2, 32, VOCAB)
        path = self.file("type.gguf", patched(self.good, info + struct.pack("<I", 0),
                                              info + struct.pack("<I", 250)))
        for command in ["run", "logits", "bench", "plan", "inspect"]:
            self.refused(ERROR, ["output.weight", "250"], command, path, *MODEL_COMMANDS[command])

    def test_unknown_pre_tokeniser(self):
        self.refused(ERROR, ["'klingon'", "llama-bpe"], "tokenize", self.bpe_model("klingon"))

    def bpe_model(self, pre):
        """A vocabulary without tensors."""
        tokens = ["a", "b", "ab"]
        def text(key, value):
            return gguf_string(key) + struct.pack("<I", 8) + gguf_string(value)
        def texts(key, values):
            return (gguf_string(key) + struct.pack("<IIQ", 9, 8, len(values)) +
                    b"".join(map(gguf_string, values)))
        pairs = [text("general.architecture", "gpt2"), text("tokenizer.ggml.model", "gpt2"),
                 text("tokenizer.ggml.pre", pre), texts("tokenizer.ggml.tokens", tokens),
                 texts("tokenizer.ggml.merges", ["a b"]),
                 gguf_string("tokenizer.ggml.token_type") + struct.pack("<IIQ3i", 9, 5, 3, 1, 1, 1)]
        return self.file("bpe.gguf", b"GGUF" + struct.pack("<IQQ", 3, 0, len(pairs)) +
                         b"".join(pairs))

    def test_pre_tokeniser_by_flag(self):
        path = self.bpe_model("klingon")
        result = self.done("tokenize", path, "--pre", "gpt-2", stdin=b"abab")
        self.assertEqual(result.stdout, b"2 2\n")


class Memory(Cli):
    """There isn't the memory for it: exit code 3, with numbers, before anything is loaded."""

    def small_machine(self, available_kib):
        proc = os.path.join(self.dir, "root", "proc")
        os.makedirs(proc)
        with open(os.path.join(proc, "meminfo"), "w", encoding="ascii") as f:
            f.write("MemTotal:       4194304 kB\nMemFree:        %d kB\nMemAvailable:   %d kB\n"
                    % (available_kib, available_kib))
        return os.path.join(self.dir, "root")

    def test_small_machine(self):
        # 4 GiB in all, of which the larger of 1 GiB and 15 % is kept free: 16 KiB are left.
        root = self.small_machine((1 << 20) + 16)
        for command in ["run", "logits", "bench"]:
            said = self.refused(NOFIT, "host", command, MODEL, *MODEL_COMMANDS[command],
                                env={"PN_ROOT": root})
            self.assertRegex(said, r"\d")
        result = self.run_program("plan", MODEL, env={"PN_ROOT": root})
        self.assertEqual(result.returncode, NOFIT, result.err)

    def test_reserve(self):
        said = self.refused(NOFIT, "host", "run", MODEL, *MODEL_COMMANDS["run"],
                            env={"PN_HOST_RESERVE_BYTES": "1000T"})
        self.assertRegex(said, r"\d")

    def test_context(self):
        """Room for a short context, not for a long one: refused, and the one that fits is named."""
        def total(ctx):
            said = self.done("plan", MODEL, "--json", "--ctx", str(ctx), "--slots", "1")
            return json.loads(said.stdout)["host_bytes"]
        middle = (total(64) + total(4096)) // 2
        root = self.small_machine((1 << 20) + middle // 1024)
        args = ["run", MODEL, *MODEL_COMMANDS["run"]]
        self.refused(NOFIT, ["4096", "host"], *args, "--ctx", "4096", env={"PN_ROOT": root})
        self.done(*args, "--ctx", "64", env={"PN_ROOT": root})
        self.done(*args, env={"PN_ROOT": root})  # without --ctx: what fits

    def test_cache(self):
        """By kind of layers, and the kinds together are the plan's part."""
        for name, kinds in [("gpt-oss", {"full": 2 * 64, "window": 2 * 64}),
                            ("deepseek2", {"latent": 4 * 64})]:
            path = os.path.join(os.path.dirname(MODEL), name + ".gguf")
            said = self.done("plan", path, "--json", "--ctx", "200", "--slots", "3", "--kv", "f16")
            plan = json.loads(said.stdout)
            pages = {k["kind"]: k for k in plan["pages"]}
            self.assertEqual({k: v["token_bytes"] for k, v in pages.items()}, kinds)
            self.assertEqual({k: v["window"] for k, v in pages.items()},
                             {k: 16 if k == "window" else 0 for k in kinds})
            parts = {p["name"]: p["bytes"] for p in plan["parts"]}
            most = 3 * sum(k["page_bytes"] * k["pages_per_slot"] for k in pages.values())
            (self.assertLessEqual if "window" in kinds else self.assertEqual)(parts["kv"], most)
            shown = self.done("plan", path, "--ctx", "200").stdout.decode()
            said = json.loads(self.done("inspect", path, "--json").stdout)["cache"]
            self.assertEqual({k["kind"]: k["f16_bytes_per_token"] for k in said}, kinds)
            for kind, total in kinds.items():
                self.assertRegex(shown, r"\n%s +[0-9]+ +(all|16) +%d " % (kind, total))
                self.assertRegex(self.done("inspect", path).stdout.decode(),
                                 r"cache +%s: [0-9]+ layers, %d bytes a token" % (kind, total))

    def test_context_beyond_training(self):
        self.refused(ERROR, ["16777216", "4096", "llama.context_length"], "run", MODEL,
                     *MODEL_COMMANDS["run"], "--ctx", "16777216")


class Input(Cli):
    def test_token_out_of_range(self):
        said = self.refused(ERROR, [str(VOCAB)], "logits", MODEL, "--tokens",
                            "1,2,%d" % VOCAB, "--out", "OUT")
        self.assertIn("319", said.replace(str(VOCAB), "", 1) + " 319")

    def test_tokenize(self):
        self.assertEqual(self.done("tokenize", MODEL, stdin=b"").stdout, b"\n")
        self.assertRegex(self.done("tokenize", MODEL, stdin=b"ab c").stdout, rb"\A\d+( \d+)*\n\Z")
        # A character without a token of its own goes through byte fallback: <0x00> is token 3.
        self.assertEqual(self.done("tokenize", MODEL, stdin="\u0119".encode()).stdout.split()[-2:],
                         [b"%d" % (3 + 0xc4), b"%d" % (3 + 0x99)])
        self.refused(ERROR, ["not UTF-8", "byte 2", "0xFF"], "tokenize", MODEL, stdin=b"ab\xff")
        self.refused(ERROR, ["not UTF-8", "byte 1"], "tokenize", MODEL, stdin=b"a\xc4")

    def test_empty_prompt(self):
        self.refused(ERROR, "empty prompt", "run", MODEL, "-p", "", "-n", "1", "--temp", "0")
        self.refused(ERROR, "nothing to continue", "run", MODEL, "--raw", "-p", "")

    def test_lines(self):
        args = ["run", MODEL, "--raw", "-n", "2", "--temp", "0"]
        one = self.done(*args, "-p", "ab").stdout
        self.assertEqual(self.done(*args, stdin=b"ab\n\nab").stdout, one * 2)
        self.assertEqual(self.done(*args, stdin=b"").stdout, b"")
        self.refused(ERROR, ["line 1", "not UTF-8", "0xff"], *args, stdin=b"a\xffb\nab\n")

    def test_output_file(self):
        bad = os.path.join(self.dir, "no", "such", "folder")
        self.refused(ERROR, bad, "logits", MODEL, "--tokens", "1,2", "--out", bad)
        self.refused(ERROR, self.dir, "logits", MODEL, "--tokens", "1,2", "--out", self.dir)

    @unittest.skipUnless(os.path.exists("/dev/full"), "there is no /dev/full")
    def test_output_to_a_device(self):
        """What is no plain file is written to, never replaced. Through a link, so that a program
        that gets this wrong breaks the link and not the machine."""
        link = os.path.join(self.dir, "device")
        os.symlink("/dev/full", link)
        result = self.run_program("logits", MODEL, "--tokens", "1,2", "--out", link)
        self.assertEqual(result.returncode, ERROR, result.err)
        self.assertIn("No space", result.err)
        self.assertTrue(os.path.islink(link))

    def test_failed_command_leaves_the_old_file(self):
        old = self.file("old.f32", b"precious")
        result = self.run_program("logits", MODEL, "--tokens", "1,%d" % VOCAB, "--out", old)
        self.assertEqual(result.returncode, ERROR)
        with open(old, "rb") as f:
            self.assertEqual(f.read(), b"precious")
        self.assertEqual(sorted(os.listdir(self.dir)), ["old.f32"])

    @unittest.skipUnless(os.path.exists("/dev/full"), "there is no /dev/full")
    def test_full_disk(self):
        for args in [["--help"], ["inspect", MODEL], ["plan", MODEL], ["tokenize", MODEL],
                     ["run", MODEL, *MODEL_COMMANDS["run"]],
                     ["bench", MODEL, "--json", *MODEL_COMMANDS["bench"]]]:
            with open("/dev/full", "wb") as full:
                result = self.run_program(*args, stdin=b"a", stdout=full)
            self.assertEqual(result.returncode, ERROR, (args, result.err))
            self.assertIn("standard output: No space left", result.err, args)

    def test_reader_gone(self):
        reader, writer = os.pipe()
        os.close(reader)
        with os.fdopen(writer, "wb") as gone:
            result = self.run_program("inspect", MODEL, stdout=gone)
        self.assertEqual(result.returncode, ERROR)
        self.assertIn("standard output: Broken pipe", result.err)

    def test_standard_output_closed(self):
        """The next file opened must not become standard output."""
        clean = {k: v for k, v in os.environ.items() if not k.startswith("PN_")}
        result = subprocess.run(["sh", "-c", 'exec "$0" "$@" >&-', PROGRAM, "logits", MODEL,
                                 "--tokens", "1,2", "--greedy", "1", "--out", self.out],
                                stderr=subprocess.PIPE, env=clean, check=False)
        self.assertEqual(result.returncode, ERROR)
        if os.path.exists(self.out):
            self.assertEqual(os.path.getsize(self.out) % (4 * VOCAB), 0)


class Results(Cli):
    def test_logits(self):
        result = self.done("logits", MODEL, "--tokens", "1,5,9", "--greedy", "4", "--out", "OUT")
        said = json.loads(result.stdout)
        self.assertEqual(os.path.getsize(self.out), (3 + 4) * VOCAB * 4)
        ids = said["greedy"] if isinstance(said, dict) else said
        self.assertEqual(len(ids), 4)
        with open(self.out, "rb") as f:
            rows = struct.unpack("<%df" % (7 * VOCAB), f.read())
        for k, token in enumerate(ids):
            row = rows[(2 + k) * VOCAB:(3 + k) * VOCAB]
            self.assertEqual(row.index(max(row)), token)

    def test_run_is_repeatable(self):
        args = ["run", MODEL, "--raw", "-p", "a b", "-n", "8", "--temp", "1", "--seed", "7"]
        self.assertEqual(self.done(*args).stdout, self.done(*args).stdout)

    def test_json(self):
        for args in [["inspect", MODEL, "--json"], ["plan", MODEL, "--json"],
                     ["bench", MODEL, "--json", *MODEL_COMMANDS["bench"]],
                     ["run", MODEL, "--json", *MODEL_COMMANDS["run"]]]:
            self.assertIsInstance(json.loads(self.done(*args).stdout), dict, args)
        bench = json.loads(self.done("bench", MODEL, "--json", *MODEL_COMMANDS["bench"]).stdout)
        self.assertGreater(bench["prefill_tok_s"], 0)
        self.assertGreater(bench["decode_tok_s"], 0)

    def test_silent_when_not_a_terminal(self):
        for args in [["inspect", MODEL], ["tokenize", MODEL], ["logits", MODEL, "--tokens", "1,2",
                                                               "--out", "OUT"]]:
            self.assertEqual(self.done(*args, stdin=b"a").err, "")


if __name__ == "__main__":
    if not PROGRAM or not MODEL:
        print(__doc__)
        sys.exit(USAGE)
    if not os.path.exists(MODEL):
        print("skipped: there is no %s" % MODEL)
        sys.exit(77)
    unittest.main()
