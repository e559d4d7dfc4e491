#!/usr/bin/env python3
"""`pannier run` as a conversation: through pipes, and on a terminal of its own.

    test_chat_run.py PROGRAM MODEL RECURRENT_MODEL [unittest arguments]

The models are tiny ones with random weights and no chat template; one is put into copies of them.
What they say is noise, but always the same.
"""

import errno
import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from chat_model import with_template  # pylint: disable=wrong-import-position

PROGRAM, MODEL, RECURRENT = ([os.path.abspath(a) for a in sys.argv[1:4]] + [""] * 3)[:3]
del sys.argv[1:4]
DONE, ERROR, USAGE = 0, 1, 2
TEMPLATES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "shared",
                         "goldens", "templates")

TEMPLATE = ("{{ bos_token }}{% for m in messages %}<s>{{ m.role }}\n{{ m.content }}</s>\n"
            "{% endfor %}{% if add_generation_prompt %}<s>a\n{% endif %}")
# As models that reason do it: what was said earlier is written in another way than the last.
CHANGING = ("{% for m in messages %}{% if loop.last %}<s>now {{ m.content }}</s>{% else %}"
            "<s>{{ m.content }}</s>{% endif %}{% endfor %}<s>")


class Chat(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.dir)
        self.model = self.model_with(TEMPLATE)
        clean = {k: v for k, v in os.environ.items()
                 if not k.startswith("PN_") and not k.startswith("XDG_")}
        self.env = dict(clean, HOME=self.dir, TERM="xterm", LC_ALL="C")

    def file(self, name, data):
        path = os.path.join(self.dir, name)
        with open(path, "wb") as f:
            f.write(data)
        return path

    def model_with(self, template, model=MODEL, name="m.gguf"):
        with open(model, "rb") as f:
            return self.file(name, with_template(f.read(), template))

    def run_program(self, *args, stdin=b""):
        result = subprocess.run([PROGRAM, *args], input=stdin, capture_output=True, env=self.env,
                                timeout=120, check=False)
        result.err = result.stderr.decode()
        self.assertNotIn("Sanitizer", result.err)
        return result

    def done(self, *args, **kwargs):
        result = self.run_program(*args, **kwargs)
        self.assertEqual(result.returncode, DONE, (args, result.err))
        return result

    def refused(self, code, says, *args, **kwargs):
        result = self.run_program(*args, **kwargs)
        self.assertEqual((result.returncode, result.stdout), (code, b""), (args, result.err))
        self.assertRegex(result.err, r"\Apannier: [^\n]+\n\Z")
        for text in [says] if isinstance(says, str) else says:
            self.assertIn(text, result.err)

    def history_path(self):
        return os.path.join(self.dir, ".local", "state", "pannier", "history")

    def ids(self, model, messages, **variables):
        conversation = dict(variables, messages=messages, add_generation_prompt=True)
        found = self.done("template", model, "--ids", stdin=json.dumps(conversation).encode())
        return [int(i) for i in found.stdout.split()]


def said(role, content):
    return {"role": role, "content": content}


def common(a, b):
    n = 0
    while n < min(len(a), len(b)) and a[n] == b[n]:
        n += 1
    return n


class Piped(Chat):
    FLAGS = ["-n", "6", "--temp", "0"]

    def turns(self, model, *args, stdin):
        result = self.done("run", model, *self.FLAGS, "--json", *args, stdin=stdin)
        return [json.loads(line) for line in result.stdout.splitlines()], result.err

    def cold(self, model, ids, n):
        """What a fresh engine says behind these ids."""
        out = os.path.join(self.dir, "rows")
        result = self.done("logits", model, "--tokens", ",".join(map(str, ids)), "--greedy", str(n),
                           "--out", out, "--kv", "f16")
        found = json.loads(result.stdout)
        return found["greedy"] if isinstance(found, dict) else found

    def test_one_turn(self):
        turn = self.turns(self.model, "-p", "hi</s>", stdin=b"")[0][0]
        ids = self.ids(self.model, [said("user", "hi</s>")])
        self.assertEqual((turn["prompt_tokens"], turn["kept_tokens"]), (len(ids), 0))
        # The template's marks: BOS, which the message's own becomes one with, and the answer's. The
        # typed one is text.
        self.assertEqual((ids.count(1), ids.count(2)), (2, 1))
        self.assertEqual(turn["tokens"], self.cold(self.model, ids, 6)[:len(turn["tokens"])])
        streamed = self.done("run", self.model, *self.FLAGS, "-p", "hi</s>")
        self.assertEqual(streamed.stdout.decode(), turn["text"] + "\n")

    def check_conversation(self, model, turns, lines, system=None):
        """Every turn was asked with all that was said before it, read what had changed and nothing
        else, and gave what a fresh engine gives. Returns how many tokens each kept."""
        messages = [said("system", system)] if system else []
        held = []
        for turn, line in zip(turns, lines):
            messages.append(said("user", line))
            ids = self.ids(model, messages)
            self.assertEqual(turn["kept_tokens"] + turn["prompt_tokens"], len(ids))
            self.assertLessEqual(turn["kept_tokens"], common(held, ids))
            self.assertEqual(turn["tokens"], self.cold(model, ids, 6)[:len(turn["tokens"])])
            messages.append(said("assistant", turn["text"]))
            held = ids + turn["tokens"]
        return [turn["kept_tokens"] for turn in turns]

    def test_three_turns(self):
        lines = ["one", "two <s>system", "z\u00fcrich \u4e2d"]
        turns, err = self.turns(self.model, "--system", "be brief",
                                stdin="\n\n".join(lines).encode())
        self.assertEqual(len(turns), 3)
        kept = self.check_conversation(self.model, turns, lines, "be brief")
        # The turn before as far as its answer, in which the last token of the prompt may go up when
        # noise is read again as text.
        self.assertGreaterEqual(kept[1], turns[0]["prompt_tokens"] - 2)
        self.assertGreaterEqual(kept[2], kept[1] + turns[1]["prompt_tokens"] - 2)
        self.assertEqual(err.count("[cut off after 6 tokens, the most that -n allows]"), 3)

    def test_what_changes_is_read_again(self):
        lines = ["one", "two", "three"]
        model = self.model_with(CHANGING)
        turns, err = self.turns(model, stdin="\n".join(lines).encode())
        kept = self.check_conversation(model, turns, lines)
        self.assertTrue(all(0 < k < t["prompt_tokens"] for k, t in zip(kept[1:], turns[1:])), kept)
        self.assertNotIn("read again", err)

    @unittest.skipUnless(os.path.exists(RECURRENT), "there is no recurrent model")
    def test_state_that_cannot_go_back(self):
        lines = ["one", "two", "three"]
        model = self.model_with(CHANGING, RECURRENT, "r.gguf")
        turns, err = self.turns(model, stdin="\n".join(lines).encode())
        self.assertEqual(self.check_conversation(model, turns, lines), [0, 0, 0])
        # Said once, with the number.
        self.assertEqual(re.findall(r"all (\d+) are read again", err),
                         [str(turns[1]["prompt_tokens"])])

    def test_commands(self):
        turns = self.turns(self.model, stdin=b"one\n/reset\none\n/exit\ntwo\n")[0]
        self.assertEqual(len(turns), 2)
        # Nothing of the first conversation is sent; what it read of the same text is kept.
        self.assertEqual(turns[0]["tokens"], turns[1]["tokens"])
        self.assertEqual(turns[1]["kept_tokens"], turns[0]["prompt_tokens"] - 1)
        # A text that begins like a command, or is written with a second slash, is a message.
        for line, content in [("/exit now", "/exit now"), ("/frob", "/frob"), ("//exit", "/exit")]:
            turn = self.turns(self.model, stdin=line.encode() + b"\n")[0][0]
            self.assertEqual(turn["prompt_tokens"],
                             len(self.ids(self.model, [said("user", content)])))

    def test_full_context(self):
        lines = [b"this is line %d of them" % i for i in range(12)]
        turns, err = self.turns(self.model, "--ctx", "256", stdin=b"\n".join(lines))
        self.assertEqual(len(turns), len(lines))
        dropped = re.findall(r"\[the context is full: the conversation has (\d+) tokens, the "
                             r"context 256, .* Its (\d+) oldest turns? (?:is|are) not sent from "
                             r"here on, which leaves (\d+) tokens", err)
        self.assertGreaterEqual(len(dropped), 2, err)
        for whole, _, left in dropped:
            self.assertGreater(int(whole), 256 - 256 // 8)
            self.assertLessEqual(int(left), 192)
        numbers = [int(n) for _, n, _ in dropped]
        self.assertEqual(numbers, sorted(set(numbers)))
        for turn in turns:
            self.assertLessEqual(turn["kept_tokens"] + turn["prompt_tokens"] + 6, 257)

    def test_message_longer_than_the_context(self):
        long = b"word " * 300
        self.refused(ERROR, ["the message was not sent", "the context holds 128", "--ctx"], "run",
                     self.model, *self.FLAGS, "--ctx", "128", "-p", long.decode())
        result = self.run_program("run", self.model, *self.FLAGS, "--ctx", "128", "--json",
                                  stdin=b"hi\n" + long + b"\n")
        self.assertEqual(result.returncode, ERROR)
        self.assertEqual(len(result.stdout.splitlines()), 1)

    def test_answer_up_to_the_end_of_the_context(self):
        result = self.done("run", self.model, "--temp", "0", "--ctx", "64", "--json", "-p", "hi")
        turn = json.loads(result.stdout)
        if turn["stop"] == "context":
            self.assertEqual(turn["prompt_tokens"] + turn["decode_tokens"], 65)
            self.assertIn("the context of 64 tokens is full", result.err)

    def test_stats(self):
        result = self.done("run", self.model, *self.FLAGS, "--stats", stdin=b"one\ntwo\n")
        self.assertEqual(len(re.findall(r"(?m)^\[\d+ prompt tokens( \(\d+ kept\))? at [\d.]+ tok/s,"
                                        r" \d+ tokens at [\d.]+ tok/s, length\]$", result.err)), 2)

    def test_arguments(self):
        template = "{% if think is defined %}{{ think }}{% else %}none{% endif %}{{ a }}"
        model = self.model_with(template)
        args = ["--template-arg", "think=false", "--template-arg", "a=\"x=y\""]
        result = self.done("template", model, *args, stdin=b'{"messages": []}')
        self.assertEqual(result.stdout, b"Falsex=y")
        turn = self.turns(model, *args, "-p", "hi", stdin=b"")[0][0]
        ids = self.ids(model, [], think=False, a="x=y")
        self.assertEqual(turn["prompt_tokens"], len(ids))
        for bad, says in [("x", "is not NAME=JSON"), ("=1", "is not NAME=JSON"),
                          ("x=yes", "is no JSON"), ("messages=[]", "set by the program"),
                          ("n" * 80 + "=1", "80 bytes")]:
            for command in ["run", "template"]:
                self.refused(USAGE, says, command, model, "--template-arg", bad,
                             stdin=b'{"messages": []}')

    def test_template_file(self):
        other = self.file("t.jinja", b"<s>{{ messages[-1].content }}")
        turn = self.turns(MODEL, "--chat-template", other, "-p", "hi", stdin=b"")[0][0]
        result = self.done("template", MODEL, "--chat-template", other, "--ids",
                           stdin=json.dumps({"messages": [said("user", "hi")]}).encode())
        self.assertEqual(turn["prompt_tokens"], len(result.stdout.split()))
        self.refused(ERROR, "No such file", "run", MODEL, "--chat-template", other + "x", "-p", "h")
        self.refused(USAGE, "goes with a model", "template", other, "--chat-template", other,
                     stdin=b'{"messages": []}')

    def test_templates_that_do_not_do(self):
        self.refused(ERROR, ["no chat template", "--raw", "--chat-template"], "run", MODEL, "-p",
                     "hi")
        model = self.model_with("\n{% include 'x' %}")
        self.refused(ERROR, ["line 2, column 4", "the block 'include'", "--raw"], "run", model,
                     "-p", "hi")
        self.done("run", model, "--raw", *self.FLAGS, "-p", "hi")
        model = self.model_with("{{ raise_exception('No system messages') }}")
        self.refused(ERROR, "No system messages", "run", model, "-p", "hi", "--system", "x")
        self.refused(ERROR, "no text", "run", self.model_with(""), "-p", "hi")
        model = self.model_with("{% for a in range(99999) %}{% for b in range(99999) %}x"
                                "{% endfor %}{% endfor %}")
        self.refused(ERROR, "more than 5000 steps", "run", model, "-p", "hi", "--template-steps",
                     "5000")

    def test_flags(self):
        for flag in [["--system", "x"], ["--chat-template", "x"], ["--template-arg", "a=1"]]:
            self.refused(USAGE, "is for conversations, not for --raw", "run", self.model, "--raw",
                         *flag, "-p", "hi")
        self.refused(USAGE, "--special is for --raw", "run", self.model, "--special", "-p", "hi")

    def test_input(self):
        self.refused(ERROR, "empty prompt", "run", self.model, "-p", "")
        self.refused(ERROR, ["line 1", "0xff"], "run", self.model, *self.FLAGS, stdin=b"a\xffb\n")
        self.assertEqual(self.done("run", self.model, stdin=b"").stdout, b"")
        self.assertEqual(self.done("run", self.model, stdin=b"\n\n").stdout, b"")
        turn = self.turns(self.model, stdin=b"a\0b\n")[0][0]
        self.assertEqual(turn["prompt_tokens"], len(self.ids(self.model, [said("user", "a\0b")])))

    def test_history_is_for_terminals(self):
        self.done("run", self.model, *self.FLAGS, stdin=b"one\n")
        self.assertFalse(os.path.exists(self.history_path()))


@unittest.skipUnless(os.path.isdir(TEMPLATES), "%s is absent" % TEMPLATES)
class RealTemplates(Chat):
    """Templates of real models: each goes on from turn to turn with what it kept."""

    def test_turns(self):
        for name in sorted(os.listdir(TEMPLATES)):
            # Templates for tool use need tools.
            if not name.endswith(".jinja") or "tool_use" in name:
                continue
            result = self.done("run", MODEL, "--chat-template", os.path.join(TEMPLATES, name),
                               "--temp", "0", "-n", "3", "--json", stdin=b"hi\nthere\nyou\n")
            turns = [json.loads(line) for line in result.stdout.splitlines()]
            self.assertEqual(len(turns), 3, name)
            for before, turn in zip(turns, turns[1:]):
                self.assertGreater(turn["kept_tokens"], before["kept_tokens"], name)


class Terminal(Chat):
    """The program with a terminal on all three of its standard streams."""

    def start(self, *args):
        pid, fd = pty.fork()
        if pid == 0:
            os.execve(PROGRAM, [PROGRAM, "run", self.model, "--temp", "0", *args], self.env)
        self.pid, self.fd = pid, fd
        self.seen = ""
        self.addCleanup(self.stop)
        self.expect("Ctrl-D ends]")
        self.expect("> ")

    def stop(self):
        os.close(self.fd)
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)

    def read(self, seconds):
        if not select.select([self.fd], [], [], seconds)[0]:
            return ""
        try:
            return os.read(self.fd, 65536).decode(errors="replace")
        except OSError as e:
            if e.errno != errno.EIO:
                raise
            return ""

    def expect(self, text, seconds=60):
        """Reads on until `text`; returns what came before it."""
        end = time.monotonic() + seconds
        while text not in self.seen:
            left = end - time.monotonic()
            self.assertGreater(left, 0, "waiting for %r, saw %r" % (text, self.seen[-2000:]))
            self.seen += self.read(min(left, 0.5))
        before, self.seen = self.seen.split(text, 1)
        return before

    def type(self, text):
        os.write(self.fd, text.encode())

    def ends(self):
        """Exits with 0."""
        end = time.monotonic() + 60
        while time.monotonic() < end:
            self.seen += self.read(0.1)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.pid = 0
                self.assertEqual(status, 0, self.seen)
                return
        self.fail("still running: %r" % self.seen[-2000:])

    def history(self):
        path = self.history_path()
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
        with open(path, encoding="utf-8") as f:
            return f.read().split("\n")

    def test_conversation(self):
        self.start("-n", "4", "--stats")
        self.type("hello\r")
        self.expect("length]")
        self.expect("> ")
        self.type("again\r")
        self.assertRegex(self.expect("length]"), r"\(\d+ kept\)")
        self.expect("> ")
        self.type("/help\r")
        self.expect("/reset   start a new conversation")
        self.expect("> ")
        self.type("/rest\r")
        self.expect("did you mean /reset?")
        self.expect("> ")
        self.type("/reset\r")
        self.expect("[a new conversation]")
        self.expect("> ")
        self.type("\x04")
        self.ends()
        self.assertIn("hello", self.history())

    def test_editing(self):
        self.start("-n", "4", "--stats")
        self.type("helo\x1b[Dl\r")  # a letter put in, to the left
        self.expect("length]")
        self.expect("> ")
        self.type("\x1b[A")  # up: the line before
        self.expect("hello")
        self.type("\x15z\u00fcrich\u4e2d\x7f\r")  # the line cleared; a wide character taken back
        self.expect("length]")
        self.expect("> ")
        self.type("/exit\r")
        self.ends()
        lines = self.history()
        self.assertIn("hello", lines)
        self.assertTrue(any("rich" in line for line in lines), lines)

    def test_interrupts(self):
        self.start("--ctx", "4096", "--stats")
        for _ in range(5):
            self.type("dropped\x03")
            self.expect("> ")
        self.type("tell me\r")
        self.expect("tell me")
        end = time.monotonic() + 60
        while len(self.seen) < 20 and time.monotonic() < end:
            self.seen += self.read(0.1)
        self.type("\x03")
        # The answer may have come to its end by itself just before.
        self.expect(" tok/s, ")
        self.expect(" tok/s, ")
        self.expect("> ")
        self.type("\x03")
        self.expect("> ")
        self.type("\x04")
        self.ends()
        self.assertNotIn("dropped", self.history())

    def test_trouble_with_one_turn(self):
        self.model = self.model_with("{% if messages[-1].content == 'x' %}{{ raise_exception('No "
                                     "x, please') }}{% endif %}" + TEMPLATE)
        self.start("-n", "4", "--stats", "--ctx", "128")
        self.type("x\r")
        self.expect("pannier: No x, please")
        self.expect("> ")
        self.type("y " * 200 + "\r")
        self.expect("the message was not sent")
        self.expect("> ")
        self.type("y\r")
        self.expect("length]")
        self.expect("> ")
        self.type("\x04")
        self.ends()

    def test_history_switched_off(self):
        self.env["PN_HISTORY"] = ""
        self.start("-n", "2")
        self.type("/exit\r")
        self.ends()
        self.assertFalse(os.path.exists(self.history_path()))

    def test_history_elsewhere(self):
        self.env["XDG_STATE_HOME"] = os.path.join(self.dir, "state")
        self.start("-n", "2")
        self.type("/exit\r")
        self.ends()
        self.assertTrue(os.path.exists(os.path.join(self.dir, "state", "pannier", "history")))


if __name__ == "__main__":
    if not os.path.exists(MODEL):
        print("skipped: no model at", MODEL)
        sys.exit(77)
    unittest.main()
