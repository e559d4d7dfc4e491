#!/usr/bin/env python3
"""`pannier mem` against folders that stand for machines.

    test_cmd_mem.py PROGRAM [unittest arguments]
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else ""

GIB = 1 << 30
STATE_KEYS = [
    "host_total_bytes", "host_avail_bytes", "host_psi_some_avg10", "host_psi_full_avg10",
    "cgroup_current_bytes", "cgroup_high_bytes", "cgroup_max_bytes", "n_dies", "per_die_free",
    "per_die_budget", "per_die_used", "level", "seq", "eff_avail_bytes", "bind_domain",
    "raw_level", "sample_ns",
]
MORE_KEYS = ["why", "sources", "domains", "ledger"]
OWNERS = ["weights", "kv", "state", "experts", "prefix", "scratch", "io", "http"]


class Mem(unittest.TestCase):
    def setUp(self):
        self.root = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.root)
        self.host(16, 12)
        self.psi(0, 0)

    def put(self, path, text):
        path = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        # Renamed into place: a reader never sees half of it.
        with open(path + ".new", "w", encoding="ascii") as f:
            f.write(text)
        os.rename(path + ".new", path)

    def host(self, total, avail):
        self.put("proc/meminfo", "MemTotal: %d kB\nMemAvailable: %d kB\n" % (
            total * 2**20, avail * 2**20))

    def psi(self, some, full):
        self.put("proc/pressure/memory", "some avg10=%.2f total=0\nfull avg10=%.2f total=0\n" % (
            some, full))

    def group(self, current, limit):
        self.put("proc/self/cgroup", "0::/box\n")
        base = "sys/fs/cgroup/box/memory."
        self.put(base + "max", "%d\n" % (limit * GIB))
        self.put(base + "high", "max\n")
        self.put(base + "current", "%d\n" % (current * GIB))
        self.put(base + "stat", "inactive_file 0\nactive_file 0\nfile_dirty 0\nfile_writeback 0\n")

    def env(self, env):
        clean = {k: v for k, v in os.environ.items() if not k.startswith("PN_")}
        clean.update(env or {})
        return clean

    def run_mem(self, *args, code=0, env=None, root=True):
        args = [PROGRAM, "mem", *args] + (["--root", self.root] if root else [])
        r = subprocess.run(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                           env=self.env(env), timeout=60, check=False)
        self.assertEqual(r.returncode, code, r.stderr)
        return r

    def json(self, **kwargs):
        return json.loads(self.run_mem("--json", **kwargs).stdout)


class Once(Mem):
    def test_keys(self):
        j = self.json()
        keys = list(j)
        self.assertEqual(keys[:len(STATE_KEYS)], STATE_KEYS)
        self.assertEqual(keys[-len(MORE_KEYS):], MORE_KEYS)
        self.assertEqual(j["level"], "OK")
        self.assertEqual(j["host_total_bytes"], 16 * GIB)
        self.assertEqual(j["bind_domain"], "host")
        self.assertEqual(j["sources"]["meminfo"], {"status": "up", "why": ""})
        self.assertEqual(j["sources"]["cgroup"]["status"], "absent")
        self.assertEqual(list(j["ledger"]), OWNERS)
        self.assertFalse(j["stale"])

    def test_domains(self):
        self.group(7.25, 8)
        j = self.json()
        self.assertEqual(j["bind_domain"], "cgroup:/box")
        self.assertEqual(j["eff_avail_bytes"], GIB * 3 // 4)
        self.assertEqual(j["cgroup_max_bytes"], 8 * GIB)
        named = {d["name"]: d for d in j["domains"]}
        self.assertEqual(named["cgroup:/box"]["reserve_bytes"], GIB // 2)
        self.assertEqual(named["cgroup:/box"]["headroom_bytes"], GIB // 4)
        self.assertEqual(j["level"], "WATCH")
        self.assertIn("cgroup:/box: 0.750 GiB available", j["why"])
        text = self.run_mem().stdout
        self.assertRegex(text, r"(?m)^level +WATCH$")
        self.assertRegex(text, r"(?m)^available +768\.0 MiB \(cgroup:/box\)$")
        self.assertRegex(text, r"(?m)^cgroup:/box +768\.0 +512\.0 +256\.0$")
        self.assertRegex(text, r"(?m)^deficit +288\.0 MiB$")

    def test_settings(self):
        self.assertEqual(self.json(env={"PN_HOST_RESERVE_BYTES": "12G"})["level"], "CRITICAL")
        self.assertEqual(self.json(env={"PN_HOST_RESERVE_BYTES": "1G"})["level"], "OK")
        self.psi(30, 20)
        j = self.json()
        self.assertEqual((j["level"], j["deficit_bytes"]), ("CRITICAL", 0))
        self.assertIn("stalls: all tasks waited for memory 20.00 %", j["why"])
        self.assertEqual(self.json(env={"PN_PSI_FULL_REJECT": "40"})["level"], "TIGHT")
        self.group(1, 8)
        j = self.json(env={"PN_CGROUP_RESERVE_BYTES": "3G"})
        self.assertEqual(j["domains"][1]["headroom_bytes"], 4 * GIB)
        j = json.loads(self.run_mem("--json", root=False, env={"PN_ROOT": self.root}).stdout)
        self.assertEqual(j["cgroup_max_bytes"], 8 * GIB)
        for name, value in [("PN_PSI_FULL_REJECT", "much"), ("PN_LADDER_DISABLE", "perhaps"),
                            ("PN_DIE_RESERVE_BYTES", "-1"), ("PN_LOAD_SPIKE_BYTES", "")]:
            self.assertIn(name, self.run_mem(code=2, env={name: value}).stderr)

    def test_not_known_is_not_ok(self):
        for garbage in ["", "some\n", "some avg10=nan total=0\nfull avg10=0.00 total=0\n"]:
            self.put("proc/pressure/memory", garbage)
            j = self.json()
            self.assertEqual((j["level"], j["raw_level"]), ("TIGHT", "TIGHT"))
            self.assertEqual(j["sources"]["psi"]["status"], "failed")
            self.assertIn("/proc/pressure/memory", j["sources"]["psi"]["why"])
            self.assertIn("psi unknown", j["why"])
        os.unlink(os.path.join(self.root, "proc/pressure/memory"))
        j = self.json()
        self.assertEqual((j["level"], j["sources"]["psi"]["status"]), ("OK", "absent"))
        os.unlink(os.path.join(self.root, "proc/meminfo"))
        j = self.json()
        self.assertEqual((j["level"], j["sources"]["meminfo"]["status"]), ("TIGHT", "failed"))
        self.assertEqual(j["domains"][0]["headroom_bytes"], 0)

    def test_typed(self):
        self.assertIn("unexpected argument 'model.gguf'", self.run_mem("model.gguf", code=2).stderr)
        self.assertIn("did you mean --json", self.run_mem("--jso", code=2).stderr)
        r = self.run_mem("--root", "/nowhere/at/all", code=1, root=False)
        self.assertIn("'/nowhere/at/all' is not a folder", r.stderr)
        self.assertIn("--watch", self.run_mem("--help").stdout)

    def test_this_machine(self):
        r = self.run_mem(root=False)
        self.assertRegex(r.stdout, r"\Alevel +(OK|WATCH|TIGHT|CRITICAL)")


class Watch(Mem):
    def start(self, *args):
        p = subprocess.Popen([PROGRAM, "mem", "--watch", "--root", self.root, *args],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                             env=self.env(None))

        def stop():
            p.kill()
            p.stdout.close()
            p.stderr.close()
            p.wait(60)
        self.addCleanup(stop)
        return p

    def test_json(self):
        p = self.start("--json")
        first = json.loads(p.stdout.readline())
        second = json.loads(p.stdout.readline())
        self.assertLess(first["seq"], second["seq"])
        self.assertEqual(second["level"], "OK")
        self.host(16, 1)
        until = time.monotonic() + 30
        level = "OK"
        while level != "CRITICAL" and time.monotonic() < until:
            level = json.loads(p.stdout.readline())["level"]
        self.assertEqual(level, "CRITICAL")
        # Raw is OK again at once, the published level is not.
        self.host(16, 12)
        raw = "CRITICAL"
        while raw != "OK" and time.monotonic() < until:
            j = json.loads(p.stdout.readline())
            raw = j["raw_level"]
            self.assertEqual(j["level"], "CRITICAL")
        self.assertEqual(raw, "OK")
        # Nobody reads any more.
        p.stdout.close()
        self.assertEqual(p.wait(60), 1)
        self.assertIn("standard output", p.stderr.read())

    def test_text(self):
        p = self.start()
        lines = [p.stdout.readline() for _ in range(40)]
        self.assertEqual(sum(line.startswith("level ") for line in lines), 3)
        self.assertNotIn("\033", "".join(lines))


if __name__ == "__main__":
    unittest.main()
