"""What a drill looks like from outside, by a clock of its own.

    observer.py OUT.h5 COMMAND...      COMMAND is jobscripts/drill.sh OUT.h5 ...

Runs COMMAND, watches the processes of the job in /proc every few ms, and stamps each line when it arrives.
At the end the intervals so seen stand beside those that the study file has (table recoveries): one line

    measured name, seconds in the file, seconds seen, difference

each. Exit status 0 when COMMAND left with 0 and every difference is at most 0.2 s, or OBSERVER_MOST of the environment:
a machine that has too much to do may take longer to let anybody know. Reads the file with h5py.
"""

import os
import re
import subprocess
import sys
import threading
import time

MOST = float(os.environ.get("OBSERVER_MOST", "0.2"))


EXITING = 4  # PF_EXITING of the kernel: killed, and on its way out


def alive(pid, until_reaped=False):
    """A victim is dead once it was killed; a launcher, to its parent, when it can be waited for."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            fields = stat.read().rsplit(b")", 1)[1].split()
    except OSError:
        return False
    return fields[0] not in (b"Z", b"X") and (until_reaped or not int(fields[6]) & EXITING)


def processes(out):
    """pid and name of what has OUT in its command line."""
    found = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/cmdline", "rb") as line:
                words = line.read().split(b"\0")
        except OSError:
            continue
        if out.encode() in words:
            found[int(entry)] = os.path.basename(words[0].decode())
    return found


class Watch(threading.Thread):
    """When the first rank of the first launch died, and when its launcher was gone."""

    def __init__(self, out):
        super().__init__(daemon=True)
        self.out = out
        self.died = self.ended = None

    def run(self):
        try:  # to see it when it happens, also on a machine that has too much to do
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), -15)
        except OSError:
            pass
        launchers = ("mpirun", "orterun", "prterun", "mpiexec")
        seen = {}
        while "scalestudy" not in seen.values():
            seen = processes(self.out)
            time.sleep(0.05)
        time.sleep(0.3)
        seen = processes(self.out)  # what was a launcher's fork has become a rank
        ranks = [pid for pid, name in seen.items() if name == "scalestudy"]
        launcher = next(pid for pid, name in sorted(seen.items()) if name in launchers)
        while self.ended is None:
            if self.died is None and not all(alive(pid) for pid in ranks):
                self.died = time.time()
            if not alive(launcher, until_reaped=True):
                self.ended = time.time()
            time.sleep(0.002)


def follow(stream, lines):
    for line in stream:
        lines.append((time.time(), line.decode(errors="replace").rstrip()))


def main():
    out, command = sys.argv[1], sys.argv[2:]
    watch = Watch(out)
    watch.start()
    job = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    lines = []
    follow(job.stdout, lines)
    status = job.wait()
    if status != 0:
        print("\n".join(line for _, line in lines))
        print(f"command left with status {status}")
        return 1

    def when(pattern, after=0.0):
        for at, line in lines:
            if at >= after and re.fullmatch(pattern, line):
                return at
        return None

    load = when(r"# drill: load \d+")
    loaded = when(r"# drill: loaded \d+")
    step = when(r"# drill: stepped \d+", loaded)
    resumed = next(int(line.split()[-1]) for _, line in lines if line.startswith("# drill: loaded"))
    begun = when(rf"# drill: call {resumed}")

    import h5py

    with h5py.File(out) as file:
        row = [r for name in file["points"] for r in file["points"][name]["recoveries"][:]][0]
        account = [r for name in file["points"] for r in file["points"][name]["account"][:]]
    buckets = sum(int(r["rank_ns"]) for r in account if r["view"] == 0)
    wall = sum(int(r["rank_ns"]) for r in account if r["view"] == 2)
    ns = {name: int(row[name]) / 1e9 for name in row.dtype.names if name.endswith("_ns")}
    pairs = [
        ("detection", ns["detected_ns"] - ns["failed_ns"], watch.ended - watch.died),
        ("restart", ns["loading_ns"] - ns["detected_ns"], load - watch.ended),
        ("load", ns["loaded_ns"] - ns["loading_ns"], loaded - load),
        ("first step", ns["first_step_ns"] - ns["failed_ns"], step - watch.died),
        ("lost work", ns["lost_ns"], watch.died - begun),
    ]
    victim = f"{row['cause'].decode()} {row['victim']} in {row['moment'].decode()}"
    worst = max(abs(a - b) for _, a, b in pairs)
    cells = "  ".join(f"{name} {a:.3f} {b:.3f} {a - b:+.3f}" for name, a, b in pairs)
    print(f"{victim}, {row['lost_steps']} steps lost: {cells}")
    good = worst <= MOST and buckets == wall
    if not good:
        print(f"largest difference {worst:.3f} s; buckets - wall {buckets - wall} ns")
    return 0 if good else 1


sys.exit(main())
