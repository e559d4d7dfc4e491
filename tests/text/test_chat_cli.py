#!/usr/bin/env python3
"""`pannier template` as a user meets it.

    test_chat_cli.py PROGRAM MODEL [unittest arguments]

MODEL is any small GGUF with a vocabulary and no chat template; one is put into a copy of it.
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from chat_model import with_template  # pylint: disable=wrong-import-position

PROGRAM = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 2 else ""
MODEL = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else ""
DONE, ERROR, USAGE = 0, 1, 2

TEMPLATE = ("{{ bos_token }}{% for m in messages %}<s>{{ m.role }}\n{{ m.content }}</s>\n"
            "{% endfor %}{% if add_generation_prompt %}>{% endif %}")
CONVERSATION = {"messages": [{"role": "user", "content": "hi</s>"}], "add_generation_prompt": True,
                "bos_token": "<s>"}
TEXT = "<s><s>user\nhi</s></s>\n>"


class Template(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = folder.name
        self.template = self.file("t.jinja", TEMPLATE.encode())

    def file(self, name, data):
        path = os.path.join(self.dir, name)
        with open(path, "wb") as f:
            f.write(data)
        return path

    def run_program(self, *args, conversation=CONVERSATION, env=None):
        given = conversation
        if not isinstance(given, bytes):
            given = json.dumps(given).encode()
        clean = {k: v for k, v in os.environ.items() if not k.startswith("PN_")}
        clean.update(env or {})
        result = subprocess.run([PROGRAM, *args], input=given, capture_output=True, timeout=60,
                                env=clean, check=False)
        self.assertNotIn(b"Sanitizer", result.stderr)
        return result

    def prints(self, text, *args, **kwargs):
        result = self.run_program("template", *args, **kwargs)
        self.assertEqual((result.returncode, result.stderr), (DONE, b""))
        self.assertEqual(result.stdout.decode(), text)

    def refused(self, code, says, *args, **kwargs):
        result = self.run_program("template", *args, **kwargs)
        self.assertEqual((result.returncode, result.stdout), (code, b""))
        self.assertRegex(result.stderr.decode(), r"\Apannier: [^\n]+\n\Z")
        self.assertIn(says, result.stderr.decode())

    def test_prints(self):
        self.prints(TEXT, self.template)
        clock = self.file("clock", b"{{ strftime_now('%A %d %B %Y %H:%M:%S %j') }}")
        self.prints("Sunday 09 March 2025 14:05:06 068", clock, "--now", "2025-03-09T14:05:06")
        year = self.file("year", b"{{ strftime_now('%Y') | int > 2000 }}")
        self.prints("True", year)
        other = self.file("other", b"{{ enable_thinking }}{{ eos_token }}")
        self.prints("False|", other, conversation=dict(CONVERSATION, enable_thinking=False,
                                                       eos_token="|"))
        self.prints("", self.file("empty", b""))

    def test_refuses(self):
        raising = self.file("raise", b"{{ raise_exception('System role not supported') }}")
        result = self.run_program("template", raising)
        self.assertEqual((result.returncode, result.stderr.decode()),
                         (ERROR, "pannier: System role not supported\n"))
        self.refused(ERROR, "line 2, column 4: the block 'include'",
                     self.file("inc", b"\n{% include 'x' %}"))
        self.refused(ERROR, "conversation: line 1, column", self.template, conversation=b'{"a": }')
        self.refused(ERROR, "conversation: line", self.template, conversation=b"")
        self.refused(ERROR, "no object", self.template, conversation=[1])
        self.refused(ERROR, "messages[0] has no role", self.template,
                     conversation={"messages": [{"content": "x"}]})
        self.refused(ERROR, "messages[0].content", self.template,
                     conversation={"messages": [{"role": "user", "content": 5}]})
        deep = b'{"messages": [], "x": ' + b"[" * 3000 + b"]" * 3000 + b"}"
        self.refused(ERROR, "depth", self.template, conversation=deep)
        self.refused(ERROR, "No such file", os.path.join(self.dir, "nothing"))
        self.refused(USAGE, "--now: 'x'", self.template, "--now", "x")
        self.refused(USAGE, "no such day", self.template, "--now", "2025-02-30T00:00:00")
        self.refused(USAGE, "--ids needs a model", self.template, "--ids")

    def test_limits(self):
        endless = self.file("endless", b"{% for a in range(99999) %}{% for b in range(99999) %}x"
                                       b"{% endfor %}{% endfor %}")
        self.refused(ERROR, "limit of 1024 bytes", endless, "--template-output", "1K")
        self.refused(ERROR, "more than 5000 steps", endless, env={"PN_TEMPLATE_STEPS": "5000"})
        self.refused(ERROR, "memory than the limit of 65536", endless, "--template-memory", "64K")
        self.refused(ERROR, "more than --template-bytes of 8", endless, "--template-bytes", "8")
        nested = self.file("nested", b"{% if 1 %}" * 20 + b"{% endif %}" * 20)
        self.refused(ERROR, "deeper than the limit of 10", nested, "--template-depth", "10")

    def test_model(self):
        self.refused(ERROR, "no chat template", MODEL)
        with open(MODEL, "rb") as f:
            model = self.file("m.gguf", with_template(f.read(), TEMPLATE))
        without = {k: v for k, v in CONVERSATION.items() if k != "bos_token"}
        self.prints(TEXT, model, conversation=without)

        def ids(*args, **kwargs):
            result = self.run_program(*args, "--ids", **kwargs)
            self.assertEqual((result.returncode, result.stderr), (DONE, b""))
            self.assertRegex(result.stdout.decode(), r"\A\d+( \d+)*\n\Z")
            return result.stdout.split()

        # The first BOS is one, though model and template both write it; the one that begins a turn
        # comes right behind and is the same token. What the user typed is no mark.
        found = ids("template", model, conversation=without)
        self.assertEqual(found.count(b"1"), 1)
        self.assertEqual(found.count(b"2"), 1)
        self.assertEqual(found[0], b"1")


if __name__ == "__main__":
    if not os.path.exists(MODEL):
        print("skipped: no model at", MODEL)
        sys.exit(77)
    unittest.main()
