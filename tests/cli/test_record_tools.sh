#!/usr/bin/env bash
# The study file explains itself to the tools that people have (h5dump, h5diff, h5py, pandas), and
# what those can make of it is read or refused in one sentence.
. "$(dirname "$0")/lib.sh"

writer=$bin/bench_record_writer
python=/usr/bin/python3
run "$writer" write a.h5 3
expect_exit 0
run "$writer" write b.h5 3
expect_exit 0

if command -v h5dump >/dev/null && command -v h5diff >/dev/null; then
    run h5diff a.h5 b.h5
    expect_exit 0
    run h5dump -a /study/model a.h5
    expect_stdout '"tiny'
    run h5dump -d /points/001/steps.columns a.h5
    expect_stdout '"start_ns' '"ns' 'clock-corrected'
    check "h5dump reads all of it" h5dump -o /dev/null -y a.h5
    h5dump -H -p a.h5 >header
    check "nothing is compressed" test "$(grep -c CONTIGUOUS header)" -gt 50
    check "no filters" test "$(grep -A1 FILTERS header | grep -c NONE)" -eq \
        "$(grep -c FILTERS header)"
else
    echo "no hdf5-tools: h5dump and h5diff not tried"
fi

if "$python" -c 'import h5py, numpy' 2>/dev/null; then
    cat >look.py <<'EOF'
import sys
import h5py
import numpy

f = h5py.File("a.h5", "r")
assert f.attrs["schema"] == 4 and f.attrs["formula_version"] == 1, dict(f.attrs)
assert f.attrs["format"] == b"scalestudy study"
assert f["study"].attrs["model"] == b"tiny"
assert sorted(f["points"]) == ["000", "001", "002"]
for table in ["machine/hosts", "machine/ranks"] + [
    "points/001/" + name
    for name in "point gate work steps stalls collectives ops memory events".split()
]:
    rows, columns = f[table], f[table + ".columns"]
    names = tuple(name.decode() for name in columns["name"])
    assert rows.dtype.names == names, (table, rows.dtype.names, names)
    assert columns.attrs["formula_version"] == 1
    assert len(rows[:]) == rows.shape[0]
steps = f["points/001/steps"][:]
assert len(steps) == 320 and steps["rank"].min() >= 0 and steps["rank"].max() == 3
assert steps.dtype.itemsize <= 160 and steps["start_ns"].dtype == numpy.int64
try:
    from pandas import DataFrame
except ImportError:
    print("no pandas: DataFrame not tried")
    sys.exit()
frame = DataFrame(steps)
assert len(frame) == 320 and frame["loss"].dtype == numpy.float64
assert (frame.groupby("rank").size().sum()) == 320
print("DataFrame", frame.shape)
EOF
    run "$python" look.py
    expect_exit 0
    grep -E 'pandas|DataFrame' "$scratch/stdout"

    # Files that only somebody else's program makes: each is refused in one sentence.
    cat >hostile.py <<'EOF'
import shutil
import h5py
import numpy


def spoil(name, table="points/001/steps"):
    shutil.copy("b.h5", name)
    f = h5py.File(name, "r+")
    dtype = f[table].dtype
    del f[table]
    return f, table, dtype


f, table, dtype = spoil("huge.h5")
f.create_dataset(table, (10**12,), dtype)  # never written: takes no room
f, table, dtype = spoil("sparse.h5")
create = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
create.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
create.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
space = h5py.h5s.create_simple((2 * 10**9,))
kind = h5py.h5t.py_create(dtype)
h5py.h5d.create(f["points/001"].id, b"steps", kind, space, create)
f, table, dtype = spoil("external.h5")
f.create_dataset(table, (10,), dtype, external=[("/dev/zero", 0, 10 * dtype.itemsize)])
f, table, dtype = spoil("compressed.h5")
f.create_dataset(table, data=numpy.zeros(100, dtype), compression="gzip")
f, table, dtype = spoil("link.h5")
f[table] = h5py.ExternalLink("a.h5", "/points/001/steps")
f, table, dtype = spoil("soft.h5")
f[table] = h5py.SoftLink("/points/002/steps")
f, table, dtype = spoil("virtual.h5")
layout = h5py.VirtualLayout((10,), dtype)
layout[:] = h5py.VirtualSource("a.h5", "points/001/steps", (10,), dtype)
f.create_virtual_dataset(table, layout)
f, table, dtype = spoil("matrix.h5")
f.create_dataset(table, data=numpy.zeros((4, 4), dtype))
f, table, dtype = spoil("missing.h5")
f, table, dtype = spoil("group.h5")
f.create_group(table)
f, table, dtype = spoil("two.h5", "points/001/point")
f.create_dataset(table, data=numpy.zeros(2, dtype))
f, table, dtype = spoil("other.h5", "points/001/point")
f.create_dataset(table, data=f["points/002/point"][:])
f = h5py.File("named.h5", "w")
h5py.File("b.h5", "r").copy("points", f)
f.attrs["format"] = "scalestudy study"  # of variable length: not how we write it
shutil.copy("b.h5", "linked.h5")
f = h5py.File("linked.h5", "r+")
for i in range(3, 20000):  # one point under many names
    f["points/%03d" % i] = f["points/001"]
EOF
    check "hostile files are made" "$python" hostile.py
    while IFS=: read -r name words; do
        refuses 8 "$words" timeout 60 "$writer" verify "$name.h5" 0
    done <<'EOF'
huge:huge.h5: damaged file: steps is larger than the file
sparse:sparse.h5: damaged file
external:external.h5: damaged file: steps keeps its rows in other files
compressed:compressed.h5: damaged file: steps is compressed (h5repack -f NONE undoes it)
link:link.h5: damaged file: steps is not there
soft:soft.h5: damaged file: steps is not there
virtual:virtual.h5: damaged file: steps keeps its rows in other files
matrix:matrix.h5: damaged file: steps is not a table
missing:missing.h5: damaged file: steps is not there
group:group.h5: damaged file: steps is not there
two:two.h5: damaged file: point has not one row
other:other.h5: damaged file
named:named.h5: not a scalestudy study
linked:linked.h5: damaged file
EOF
else
    echo "no python3-h5py: h5py, pandas and hostile files not tried"
fi
finish
