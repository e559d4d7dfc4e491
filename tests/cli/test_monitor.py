#!/usr/bin/env python3
"""What stands beside a command that watches memory: the file with the last snapshot, told by the
next start after a kill, and the decisions that SIGUSR1 prints. The machine is a folder.

    test_monitor.py PANNIER MODEL
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

PANNIER, MODEL = sys.argv[1], sys.argv[2]
DEADLINE_S = 60


class Watcher:
    """A running `pannier mem --watch`."""

    def __init__(self, root, *flags, env=None):
        self.err = tempfile.TemporaryFile("w+")
        everything = {k: v for k, v in os.environ.items()
                      if not k.startswith(("PN_", "XDG_")) and k != "HOME"}
        everything.update(env or {})
        self.process = subprocess.Popen(
            [PANNIER, "mem", "--watch", "--json", "--root", root, *flags],
            stdout=subprocess.DEVNULL, stderr=self.err, env=everything)

    def end(self, sig):
        self.process.send_signal(sig)
        code = self.process.wait(DEADLINE_S)
        return code

    def log(self):
        return written(self.err)


def written(f):
    """Read without a seek: the offset is the program's too, which would then write there."""
    return os.pread(f.fileno(), 1 << 24, 0).decode()


def catches(process, sig):
    """Whether its handler stands: before that the signal would end it."""
    with open("/proc/%d/status" % process.pid, encoding="ascii") as f:
        caught = re.search(r"^SigCgt:\s*(\w+)$", f.read(), re.MULTILINE)
    return int(caught.group(1), 16) >> (sig - 1) & 1


def wait_for(what):
    until = time.monotonic() + DEADLINE_S
    while time.monotonic() < until:
        got = what()
        if got:
            return got
        time.sleep(0.02)
    raise AssertionError("waited %d s in vain" % DEADLINE_S)


class Monitor(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = os.path.join(self.folder.name, "machine")
        self.state = os.path.join(self.folder.name, "deep", "state")
        os.makedirs(os.path.join(self.root, "proc"))
        self.have(12 << 20)
        self.watchers = []

    def tearDown(self):
        for w in self.watchers:
            if w.process.poll() is None:
                w.end(signal.SIGKILL)
            w.err.close()
        self.folder.cleanup()

    def have(self, kib):
        """So much of 16 GiB is available."""
        path = os.path.join(self.root, "proc", "meminfo")
        with open(path + ".new", "w") as f:
            f.write("MemTotal: %d kB\nMemAvailable: %d kB\n" % (16 << 20, kib))
        os.rename(path + ".new", path)

    def start(self, *flags, env=None):
        w = Watcher(self.root, *flags, env=env)
        self.watchers.append(w)
        return w

    def files(self, folder=None):
        folder = folder or self.state
        if not os.path.isdir(folder):
            return []
        return [os.path.join(folder, n) for n in sorted(os.listdir(folder)) if n.endswith(".txt")]

    def text(self, path):
        with open(path) as f:
            return f.read()

    def test_killed(self):
        w = self.start("--state-dir", self.state)
        path = wait_for(self.files)[0]
        self.assertIn("level OK\n", self.text(path))
        self.have(1 << 20)
        wait_for(lambda: "level CRITICAL\n" in self.text(path))
        text = self.text(path)
        self.assertIn("command mem\npid %d\n" % w.process.pid, text)
        self.assertIn("headroom 0 bytes (0.0 MiB)\ndomain host\n", text)
        self.assertEqual(w.end(signal.SIGKILL), -signal.SIGKILL)
        self.have(12 << 20)
        after = self.start("--state-dir", self.state)
        line = wait_for(after.log)
        self.assertRegex(
            line, r"warning: 'mem' \(process %d\) was ended from outside; its last snapshot, of "
            r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ: level CRITICAL, headroom 0 bytes "
            r"\(0.0 MiB\) in host\n" % w.process.pid)
        self.assertEqual(line.count("\n"), 1)
        wait_for(lambda: any(str(after.process.pid) in f for f in self.files()))
        self.assertEqual(len(self.files()), 1)  # told once

    def test_polite_ends_leave_nothing(self):
        for sig in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            w = self.start("--state-dir", self.state)
            wait_for(self.files)
            self.assertEqual(w.end(sig), -sig)
            self.assertEqual(self.files(), [])
            self.assertEqual(w.log(), "")

    def test_two_at_once(self):
        one = self.start("--state-dir", self.state)
        wait_for(self.files)
        two = self.start("--state-dir", self.state)
        wait_for(lambda: len(self.files()) == 2)
        self.assertEqual(two.log(), "")  # who lives wasn't ended
        one.end(signal.SIGKILL)
        two.end(signal.SIGKILL)
        three = self.start("--state-dir", self.state)
        self.assertIn("; 1 more before it", wait_for(three.log))

    def test_where(self):
        home = os.path.join(self.folder.name, "home")
        xdg = os.path.join(self.folder.name, "xdg")
        cases = [
            ({"HOME": home}, os.path.join(home, ".local/state/pannier")),
            ({"HOME": home, "XDG_STATE_HOME": xdg}, os.path.join(xdg, "pannier")),
            ({"HOME": home, "XDG_STATE_HOME": "relative"},
             os.path.join(home, ".local/state/pannier")),
            ({"HOME": home, "PN_STATE_DIR": self.state}, self.state),
        ]
        for env, folder in cases:
            w = self.start(env=env)
            wait_for(lambda: self.files(folder))
            w.end(signal.SIGTERM)
            self.assertEqual(w.log(), "")

    def usable(self, w):
        """It watches on: SIGUSR1 is answered."""
        wait_for(lambda: catches(w.process, signal.SIGUSR1))
        wait_for(lambda: w.process.send_signal(signal.SIGUSR1) or "decisions" in w.log())

    def test_nowhere(self):
        busy = os.path.join(self.folder.name, "a-file")
        with open(busy, "w"):
            pass
        asked = self.start("--state-dir", os.path.join(busy, "x"))
        self.assertRegex(wait_for(asked.log), "--state-dir: '.*/a-file/x' can't be used, no "
                         "snapshot is kept there: Not a directory")
        self.usable(asked)
        for flags, env in (([], {"HOME": busy}), ([], {}),
                           (["--state-dir", ""], {"HOME": self.root})):
            w = self.start(*flags, env=env)
            self.usable(w)
            self.assertNotIn("state", w.log())
        self.assertEqual(os.listdir(self.root), ["proc"])

    def test_hostile_files(self):
        os.makedirs(self.state)
        for name, data in (("last-1.txt", b""), ("last-2.txt", b"\x00\xff\x1b[31m" * 9999),
                           ("last-3.txt", b"level " + b"x" * 5000)):
            with open(os.path.join(self.state, name), "wb") as f:
                f.write(data)
        os.mkdir(os.path.join(self.state, "last-4.txt"))
        os.symlink("/etc/passwd", os.path.join(self.state, "last-5.txt"))
        os.mkfifo(os.path.join(self.state, "last-6.txt"))
        w = self.start("--state-dir", self.state)
        line = wait_for(w.log)
        self.assertEqual(line.count("\n"), 1)
        self.assertNotIn("\x1b", line)
        self.assertIn("; 2 more before it", line)
        self.assertTrue(os.path.islink(os.path.join(self.state, "last-5.txt")))

    def test_decisions(self):
        w = self.start("--state-dir", self.state)
        wait_for(self.files)
        self.have(1 << 20)
        wait_for(lambda: "level CRITICAL\n" in self.text(self.files()[0]))
        for n in range(1, 4):
            w.process.send_signal(signal.SIGUSR1)
            wait_for(lambda: w.log().count("the last ") == n)
        lines = w.log().splitlines()
        self.assertRegex(lines[0], r"^pannier: the last \d+ decisions$")
        self.assertTrue(any(re.search(r"s ago  level: OK -> CRITICAL, deficit \d+ bytes", s)
                            for s in lines), w.log())
        self.assertIsNone(w.process.poll())

    def test_run(self):
        """A command that computes answers too, and ends well."""
        if not os.path.exists(MODEL):
            self.skipTest("no " + MODEL)
        with tempfile.TemporaryFile("w+") as err:
            p = subprocess.Popen([PANNIER, "run", MODEL, "--raw", "--stats", "--temp", "0", "-n",
                                  "4", "--state-dir", self.state], stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE, stderr=err, text=True)

            def log():
                return written(err)

            p.stdin.write("a\n")
            p.stdin.flush()
            wait_for(lambda: "prompt tokens" in log())
            wait_for(lambda: catches(p, signal.SIGUSR1))
            p.send_signal(signal.SIGUSR1)
            wait_for(lambda: "decisions" in log())
            out, _ = p.communicate("a\n", DEADLINE_S)
            self.assertEqual(p.returncode, 0, log())
            self.assertEqual(log().count("prompt tokens"), 2)
            self.assertGreater(len(out), 2)
        self.assertEqual(self.files(), [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
