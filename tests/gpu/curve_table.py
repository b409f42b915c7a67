#!/usr/bin/env python3
"""What tests/gpu/curve.sh kept, as text and CSV to be committed.

    curve_table.py FOLDER GPUS

Reads FOLDER/kept (NAME.csv and NAME.txt of scalereport, NAME.log, NAME.why of what failed); writes summary.txt,
summary.csv, curve.csv, failures and NAME.txt into FOLDER, at most 200 KB with what lies there.

Efficiency is the rate of a GPU over that of the base. Where one launch has both, it and its interval are
scalereport's. Else they are of two launches: the interval then joins those of both within their launches, and,
where the base was launched twice, half of how far those two are apart.
"""
import csv, glob, math, os, re, sys

LIMIT = 200_000
folder, gpus = sys.argv[1], int(sys.argv[2])
kept = os.path.join(folder, "kept")


def number(row, column):
    try:
        value = float(row.get(column) or "nan")
    except ValueError:
        value = math.nan
    return value


def read(path):
    with open(path, errors="replace") as file:
        return file.read()


def names(suffix):
    found = glob.glob(os.path.join(kept, "*" + suffix))
    return sorted((os.path.basename(path)[: -len(suffix)] for path in found), key=lambda n: os.path.getmtime(os.path.join(kept, n + suffix)))


# ---- points ----

AXES = ("tp", "pp", "cp", "ep", "shard")


def load(name):
    """The points of a launch, each a dictionary."""
    with open(os.path.join(kept, name + ".csv"), newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        row["launch"], row["part"] = name, re.sub(r"-\d+(x\d+)?$", "", name)
        row["kind"] = "+".join(axis for axis in AXES if number(row, axis) > 1) or "dp"
        row["n"] = int(number(row, "ranks"))
        row["rate"] = number(row, "tokens_per_s_gpu")
        middle = number(row, "step_ms_mean")
        row["half"] = number(row, "ci_hi_ms") / middle - 1 if middle > 0 else math.nan
        # what was proved wrong counts for nothing; what was not proved (--check off) is said by its gate
        row["valid"] = row.get("valid", "1") not in ("0", "no", "false")
    return rows


def base_of(row, rows):
    """The launches that a point of another launch is compared with."""
    good = [r for r in rows if r["valid"] and r["rate"] > 0]
    if row["part"] == "emulated":  # the same work on the same GPUs as one node
        one = "weak-dp" if row["kind"] == "dp" else "weak-shard"
        return [r for r in good if r["part"] == one and r["n"] == row["n"]]
    if row["part"].endswith("-shard"):  # one GPU has nothing to shard: it is dp's, the first one's
        names = (row["part"].replace("-shard", "-dp"),) + (("weak-one-0",) if row["part"] == "weak-shard" else ())
        return [r for r in good if r["launch"] in names and r["n"] == 1]
    if row["part"] == "weak-one":
        return sorted((r for r in good if r["part"] == "weak-one"), key=lambda r: r["rate"])[-1:]
    same = [r for r in good if r["part"] == row["part"] and r["kind"] == row["kind"]]
    fewest = min((r["n"] for r in same), default=0)
    return [r for r in same if r["n"] == fewest] if fewest < gpus else []


def efficiency(row, rows):
    """(value, low, high, base) as shares of one; base in words, "" where there is none."""
    own = [r for r in rows if r["launch"] == row["launch"]]
    if row["part"] in ("weak-dp", "strong-dp") and len(own) > 1:
        cells = [number(row, "eff_device%s_pct" % word) / 100 for word in ("", "_lo", "_hi")]
        return (*cells, "%s GPU, same launch" % (row.get("base_ranks") or "1").split(".")[0])
    base = base_of(row, rows)
    if not base or not row["rate"] > 0:
        return math.nan, math.nan, math.nan, ""
    return over(row, base)


def over(row, base):
    """The efficiency of a point, to the mean of other launches."""
    rate = sum(b["rate"] for b in base) / len(base)
    apart = (max(b["rate"] for b in base) - min(b["rate"] for b in base)) / 2 / rate
    within = math.sqrt(sum(b["half"] ** 2 for b in base)) / len(base)
    half = math.sqrt(row["half"] ** 2 + within**2 + apart**2)
    value = row["rate"] / rate
    if row in base:
        half = math.nan
    words = "%d GPU, %d launch%s" % (base[0]["n"], len(base), "es" if len(base) > 1 else "")
    if base[0]["part"] == "weak-one" and len(base) == 1:
        words = "fastest of those alone"
    return value, value * (1 - half), value * (1 + half), words


# ---- calls and the trainer ----

def trainers():
    """(GPUs, how, ours ms, trainer's ms, ratio, low, high) of each cell that came to an end."""
    cells = []
    for name in names(".log"):
        if name.startswith("trainer-"):
            pattern = (r"^\S+:(\d+):\S+ ours (\S+) *: ([\d.]+) .*; trainer ([\d.]+) .*; ratio ([\d.]+) \[([\d.]+), ([\d.]+)\]")
            for m in re.finditer(pattern, read(os.path.join(kept, name + ".log")), re.M):
                cells.append((int(m[1]), m[2], *(float(x) for x in m.groups()[2:])))
    return cells


def calls():
    """(how, ratio over a step, least of a call of 1 MiB or more)."""
    found = []
    for name in names(".log"):
        if name.startswith("calls-"):
            text = read(os.path.join(kept, name + ".log"))
            total = re.search(r"of a step: .* ratio ([\d.]+)", text)
            each = [float(m[2]) for m in re.finditer(r"([\d.]+) MiB x .* ratio ([\d.]+)", text) if float(m[1]) >= 1]
            if total:
                found.append((name[6:], float(total[1]), min(each, default=math.nan)))
    return found


def bounds(points):
    """(what, bound, value in words, verdict) of all that was to be shown."""
    rows = []

    def judge(what, bound, value, words, least, reached=True):
        verdict = "not reached" if not reached or math.isnan(value) else "ok" if (value >= bound if least else value <= bound) else "missed"
        rows.append((what, ("at least %.2f" if least else "at most %.2f") % bound, words, verdict))

    for part in ("weak-dp", "weak-shard"):
        at = [p for p in points if p["part"] == part and p["n"] == gpus]
        # a step of all GPUs takes what the slowest of them takes
        alone = sorted((p for p in points if p["part"] == "weak-one" and p["rate"] > 0), key=lambda p: p["rate"])
        slowest = over(at[0], alone[:1]) if at and len(alone) == gpus else (math.nan,) * 3
        for whom, cells in (("the first", at[0]["eff"] if at else (math.nan,) * 3), ("the slowest", slowest)):
            value, low, high = cells[:3]
            words = "-" if math.isnan(value) else "%.4f [%.4f, %.4f]" % (value, low, high)
            words += ": the bound lies within the interval" if low < 0.96 < high else ""
            if at and not at[0]["valid"]:
                value, words = math.nan, words + ", but it failed its proof"
            judge("%s, %d GPUs to %s of them alone" % (part, gpus, whom), 0.96, value, words, True)
    if gpus < 8:
        judge("weak efficiency 1 to 8 GPUs", 0.96, math.nan, "%d GPUs here" % gpus, True)
    launches = trainers()
    for n in sorted({gpus, 4} if gpus > 4 else {gpus}):
        for how in ("fsdp", "ddp"):
            at = [c for c in launches if c[0] == n and c[1] == how]
            words = "%.4f [%.4f, %.4f], %.1f over %.1f ms" % (*at[-1][4:7], at[-1][2], at[-1][3]) if at else "-"
            judge("step over the trainer's, %s, %d GPUs" % (how, n), 1.0, at[-1][4] if at else math.nan, words, False)
    found = {how: (total, least) for how, total, least in calls()}
    for how in ("ddp", "fsdp"):
        total, least = found.get(how, (math.nan, math.nan))
        words = "%.3f over a step, least call %.3f" % (total, least) if how in found else "-"
        judge("calls over a bare NCCL loop, %s, %d GPUs" % (how, gpus), 0.97, min(total, least), words, True)
    return rows


# ---- what is written ----

def show(value, digits):
    return "-" if math.isnan(value) else "%.*f" % (digits, value)


COLUMNS = ("launch", "nodes", "ranks", "parallel", "micro_batch", "samples", "step_ms", "step_lo_ms", "step_hi_ms", "step_p50_ms", "tokens_per_s",
           "efficiency_pct", "low_pct", "high_pct", "base", "exposed_ms", "joules_per_token", "gate", "status")


def cells(p):
    value, low, high, base = p["eff"]
    return [p["launch"], p.get("nodes", ""), p["n"], p.get("parallel") or p["kind"], p.get("mbs", ""), p.get("gbs", ""),
            show(number(p, "step_ms_mean"), 3), show(number(p, "ci_lo_ms"), 3), show(number(p, "ci_hi_ms"), 3),
            show(number(p, "step_ms_p50"), 3), show(number(p, "tokens_per_s"), 1), show(100 * value, 2), show(100 * low, 2),
            show(100 * high, 2), base or "-", show(number(p, "exposed_ms"), 3), show(number(p, "joules_per_token"), 6),
            p.get("gate", "") if p["valid"] else "WRONG", p.get("status", "")]


def aligned(rows):
    widths = [max(len(str(row[i])) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(str(c).ljust(w) for c, w in zip(row, widths)).rstrip() for row in rows) + "\n"


def sections(text):
    """A report without the tables that its file repeats at any time, and memory by its sums."""
    left = ("what an interval is made of", "outside the timed steps", "traffic of a full step", "columns are defined")
    blocks = re.split(r"(?m)^#\n", text)
    blocks = [b for b in blocks if not b[2:].startswith(left)]
    for i, block in enumerate(blocks):
        if block.startswith("# memory by class"):
            keep = [line[:110] for line in block.splitlines() if line.startswith("#") or re.search(r" (training|reserved|process) ", line)]
            blocks[i] = "\n".join(line.rstrip() for line in keep) + "\n"
    return "#\n".join(blocks)


def cut(text, size, name):
    """Whole lines of it, and a word about the rest."""
    if len(text.encode()) <= size:
        return text
    rest = "# cut here: kept/%s has all of it\n" % name
    room, lines = size - len(rest), []
    for line in text.splitlines(True):
        room -= len(line.encode())
        if room < 0:
            break
        lines.append(line)
    return "".join(lines) + rest


def share(sizes, room):
    """The largest size that every text may have so that all of them fit."""
    each, ordered = room, sorted(sizes)
    for i, size in enumerate(ordered):
        each = room // (len(ordered) - i)
        if size > each:
            return each
        room -= size
    return max(ordered, default=0)


def write(name, text):
    with open(os.path.join(folder, name), "w") as file:
        file.write(text)


def write_csv(name, rows):
    with open(os.path.join(folder, name), "w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)


def main():
    points = [p for name in names(".csv") for p in load(name)]
    for p in points:
        p["eff"] = efficiency(p, points)
    judged = bounds(points)
    why = ["%s: %s" % (name, read(os.path.join(kept, name + ".why")).strip()) for name in names(".why")]
    table = [COLUMNS] + [cells(p) for p in points]
    cells_of = [("trainer", n, how, ours, theirs, ratio, low, high) for n, how, ours, theirs, ratio, low, high in trainers()]
    text = "# %d GPUs; %s\n#\n" % (gpus, read(os.path.join(kept, "settings")).strip())
    text += "# what was to be shown\n" + aligned([("what", "bound", "measured", "verdict")] + judged) + "#\n# cells\n" + aligned(table)
    text += "#\n# beside the trainer, medians of launches in ms\n"
    text += aligned([("", "GPUs", "how", "ours", "trainer", "ratio", "low", "high")] + cells_of) if cells_of else "not reached\n"
    text += "#\n# failed\n" + ("\n".join(why) + "\n" if why else "nothing\n")
    write("summary.txt", text)
    write_csv("summary.csv", table)
    write("failures", "".join(line + "\n" for line in why))
    all_columns = []
    for p in points:
        all_columns += [c for c in p if c not in all_columns and c not in ("part", "kind", "n", "rate", "half", "eff")]
    order = ["launch"] + [c for c in all_columns if c != "launch" and any(p.get(c) for p in points)]  # what no point has is left out
    write_csv("curve.csv", [order] + [[p.get(c, "") for c in order] for p in points])

    shown = [name for name in names(".txt") if not re.match(r"weak-one-[1-9]", name)]  # of the GPUs alone one speaks for all
    texts = {name: sections(read(os.path.join(kept, name + ".txt"))) for name in shown}
    texts.update({name: read(os.path.join(kept, name + ".log")) for name in names(".log") if name.startswith(("trainer-", "calls-"))})
    for name in texts:
        write(name + ".txt", "")
    others = sum(os.path.getsize(path) for path in glob.glob(os.path.join(folder, "*")) if os.path.isfile(path))
    each = share([len(t.encode()) for t in texts.values()], LIMIT - others)
    for name, text in texts.items():
        write(name + ".txt", cut(text, each, name + (".log" if name.startswith(("trainer-", "calls-")) else ".txt")))


main()
