#!/usr/bin/env python3
"""The checks themselves are tested: each rule is broken once, on purpose, and must be reported."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

import check_includes
import check_isa
import source_tree
import tidy

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)


class Tree(unittest.TestCase):
    """A throw-away source tree."""

    def setUp(self):
        self.root = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.root)
        self.write("src/base/err.h", "int a;\n")
        self.write("src/quant/quant.h", '#include "base/err.h"\n')
        self.write("src/gguf/gguf.h", '#include "quant/quant.h"\n')
        self.write("include/pn_err.h", "int b;\n")

    def write(self, path, text):
        full = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w", encoding="utf-8") as f:
            f.write(text)

    def run_script(self, name, *args):
        return subprocess.run([sys.executable, os.path.join(HERE, name), *args], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)


class Includes(Tree):
    def expect(self, path, text, what):
        self.assertEqual(check_includes.check(self.root), [])
        self.write(path, text)
        found = check_includes.check(self.root)
        self.assertEqual(len(found), 1, found)
        self.assertIn(what, found[0])
        self.assertIn(path, found[0])

    def test_exit_code(self):
        result = self.run_script("check_includes.py", "--root", self.root)
        self.assertEqual(result.returncode, 0, result.stdout)
        self.write("src/gguf/kv.c", '#include "nowhere.h"\n')
        self.assertEqual(self.run_script("check_includes.py", "--root", self.root).returncode, 1)

    def test_upward(self):
        self.expect("src/base/up.c", '#include "gguf/gguf.h"\n', "not below it")

    def test_same_rank(self):
        self.write("src/spill/plan.h", "")
        self.expect("src/kv/pages.c", '#include "spill/plan.h"\n', "not below it")

    def test_device_in_models(self):
        self.write("src/ops/cpu/pool.h", "")
        self.write("src/ops/ops.c", '#include "ops/cpu/pool.h"\n')
        self.expect("src/models/llama.c", '#include "ops/cpu/pool.h"\n', "the device")

    def test_relative(self):
        self.expect("src/gguf/kv.c", '#include "gguf.h"\n', "not a file of a room")

    def test_angle_brackets(self):
        self.expect("src/gguf/kv.c", "#include <base/err.h>\n", "with quotes")

    def test_public_from_above(self):
        self.expect("src/gguf/kv.c", '#include "pannier.h"\n', "from above")

    def test_public_header_stays_public(self):
        self.expect("include/pannier.h", '#include "base/err.h"\n', "not public")

    def test_source_in_test(self):
        self.expect("tests/base/t.c", '#include "base/err.c"\n', "a source file")

    def test_stranger(self):
        self.expect("src/misc/x.c", "int x;\n", "no room")


class Tidy(Tree):
    def expect(self, path, text, what):
        self.assertEqual(tidy.check(self.root), ([], []))
        self.write(path, text)
        breaches, _ = tidy.check(self.root)
        self.assertEqual(len(breaches), 1, breaches)
        self.assertIn(what, breaches[0])

    def test_exit_code(self):
        self.assertEqual(self.run_script("tidy.py", "--root", self.root).returncode, 0)
        self.write("src/gguf/a.c", "int a;")
        self.assertEqual(self.run_script("tidy.py", "--root", self.root).returncode, 1)

    def test_calls(self):
        for names, _, _ in tidy.BANNED_CALLS:
            for name in names.split():
                with self.subTest(name=name):
                    text = "void f(void) {\n    %s(1);\n}\n" % name
                    self.expect("src/gguf/a.c", text, "2: %s() is banned" % name)
                    os.unlink(os.path.join(self.root, "src/gguf/a.c"))

    def test_calls_that_only_look_so(self):
        self.write("src/gguf/a.c", '/* getenv(x) */\nvoid f(void) {\n    io->open("exit(1)");\n'
                                   "    my_free(x); // abort()\n    s.read(1);\n}\n")
        self.assertEqual(tidy.check(self.root), ([], []))

    def test_allowed_places(self):
        self.write("src/base/alloc.c", "void *f(void) {\n    return malloc(1);\n}\n")
        self.write("src/cli/main.c", "void f(void) {\n    exit(environ != 0);\n}\n")
        self.assertEqual(tidy.check(self.root), ([], []))

    def test_environ(self):
        self.expect("src/cli/other.c", "char **e = environ;\n", "environment is read")

    def test_long_function(self):
        def body(n):
            return "int f(int a) {\n%s}\n" % ("    a++;\n" * (n - 2))
        self.write("src/ops/cpu/k.c", body(150))
        self.write("src/gguf/short.c", body(100))
        self.expect("src/gguf/long.c", body(101), "long.c:1: f() has 101 lines")

    def test_long_kernel(self):
        self.expect("src/ops/cpu/k.c", "int f(int a) {\n%s}\n" % ("    a++;\n" * 149), "151 lines")

    def test_long_file(self):
        self.write("src/gguf/table.c", "/* %s */\n" % tidy.TABLE_MARKER + "int a;\n" * 1500)
        self.expect("src/gguf/a.c", "int a;\n" * 1001, "1001 lines, at most 1000")

    def test_long_file_warns(self):
        self.write("src/gguf/a.c", "int a;\n" * 601)
        breaches, warnings = tidy.check(self.root)
        self.assertEqual(breaches, [])
        self.assertEqual(len(warnings), 1)

    def test_text(self):
        for text, what in [("int a;\t\n", "a tab"), ("int a; \n", "blanks at the end"),
                           ("int a;", "no newline"), ("// " + "x" * 98 + "\n", "101 columns"),
                           ("// see /wo" + "rk/x\n", "absolute path"),
                           ("// see /ho" + "me/x\n", "absolute path"),
                           ("// TO" + "DO\n", "unfinished"),
                           ("// py" + "pi.org\n", "registry")]:
            with self.subTest(text=text):
                self.write("src/gguf/a.c", text)
                breaches, _ = tidy.check(self.root)
                self.assertTrue(any(what in b for b in breaches), breaches)

    def test_function_finder(self):
        code = source_tree.code_only(
            "struct s {\n    int a;\n};\n#define M(x) \\\n    {\\\n    x\n"
            "static int t[] = {1, 2};\nint one(void) {\n    if (1) {\n    }\n    return '}';\n}\n"
            "int\ntwo(const char *a,\n    int b) {\n}\n")
        self.assertEqual(list(tidy.functions(code)), [("one", 8, 12), ("two", 14, 16)])


class Isa(Tree):
    def compile(self, flags, text, extra=""):
        source = os.path.join(self.root, "src", "ops", "k.c")
        self.write("src/ops/k.c", text)
        command = "cc -O2 %s -c %s -o k.o" % (flags, source)
        subprocess.run(command, shell=True, cwd=self.root, check=True)
        self.write("compile_commands.json", json.dumps([{
            "directory": self.root, "file": source,
            "command": command.replace(flags, extra) if extra else command}]))
        return self.run_script("check_isa.py", self.root, "--root", self.root).returncode

    def test_wide(self):
        if os.uname().machine != "x86_64":
            self.skipTest("needs an x86-64 compiler")
        sums = "void f(float *a, float *b) { for (int i = 0; i < 64; i++) a[i] += b[i]; }\n"
        self.assertEqual(self.compile("-O2", sums), 0)
        # Compiled wide as its command says: the dispatch table's business.
        self.assertEqual(self.compile("-O3 -mavx2", sums), 1)  # nothing left to look at
        # Compiled wide though its command doesn't say so: a leak.
        self.assertEqual(self.compile("-O3 -mavx2", sums, "-O3"), 1)
        one = "float f(float a, float b) { return a * b; }\n"
        self.assertEqual(self.compile("-O2 -mavx", one, "-O2"), 1)
        found = list(check_isa.wide_instructions(os.path.join(self.root, "k.o")))
        self.assertTrue(found and "vmulss" in found[0], found)

    def test_other_machines_skip(self):
        result = self.run_script("check_isa.py", self.root, "--machine", "aarch64")
        self.assertEqual(result.returncode, 77)


class Format(Tree):
    def test_ugly_file(self):
        shutil.copy(os.path.join(ROOT, ".clang-format"), self.root)
        result = self.run_script("check_format.py", "--root", self.root)
        if result.returncode == 77:
            self.skipTest(result.stdout.strip())
        self.assertEqual(result.returncode, 0, result.stdout)
        self.write("src/gguf/ugly.c", "int  f( void ){return 1;}\n")
        result = self.run_script("check_format.py", "--root", self.root)
        self.assertEqual(result.returncode, 1, result.stdout)


class Packages(Tree):
    """deps.sh and sysroot.sh where apt is a script of ours."""

    def shell(self, name, *args):
        env = dict(os.environ, PATH=os.path.join(self.root, "bin") + ":" + os.environ["PATH"])
        return subprocess.run(["sh", os.path.join(HERE, name), *args], env=env, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)

    def apt(self, text):
        self.write("bin/apt-get", "#!/bin/sh\n" + text)
        os.chmod(os.path.join(self.root, "bin/apt-get"), 0o755)

    def test_purposes(self):
        with open(os.path.join(HERE, "deps.sh"), encoding="utf-8") as f:
            text = f.read()
        for purpose in ("build", "check", "aarch64", "fuzz", "demo"):
            self.assertRegex(text, r"(?m)^%s *\|" % purpose)
        result = self.shell("deps.sh", "supper")
        self.assertEqual(result.returncode, 2)
        self.assertIn("supper", result.stdout)

    def test_no_packages(self):
        """What can't be fetched is said, and nothing is left behind."""
        self.apt("echo 'no such host'; exit 100\n")
        folder = os.path.join(self.root, "to", "root")
        result = self.shell("sysroot.sh", "arm64", folder)
        self.assertEqual(result.returncode, 1)
        self.assertIn("no such host", result.stdout)
        self.assertIn("libpcre2-dev", result.stdout)
        self.assertEqual(os.listdir(os.path.dirname(folder)), [])

    def test_there_already(self):
        self.apt("exit 100\n")
        result = self.shell("sysroot.sh", "arm64", self.root)
        self.assertEqual((result.returncode, result.stdout), (0, ""))


if __name__ == "__main__":
    unittest.main()
