"""Kernels are cached on disk when they are compiled, and an import leaves the disk alone."""

import subprocess
import sys

IMPORT = """
import os, pathlib, tempfile
touched = []
for name in ("mkdir", "touch"):
    setattr(pathlib.Path, name, lambda self, *_, **__: touched.append(str(self)))
os.makedirs = lambda path, *_, **__: touched.append(str(path))
tempfile.TemporaryFile = lambda *_, **__: touched.append("temporary")
import overweave.batches.raw, overweave.matching.index
assert not touched, touched
"""


def test_an_import_creates_nothing():
    subprocess.run([sys.executable, "-c", IMPORT], check=True)


USE = """
from pathlib import Path
from overweave.matching.kernels import compile
home = Path({home!r})
compile.__file__ = str(home / "package" / "compile.py")
from overweave.batches.kernels import mark_seen
import numpy as np
fresh = np.empty(2, np.bool_)
assert mark_seen(np.zeros(8, np.uint8), 63, -1, np.array([1, 1]), fresh)[0] == 1
print(sum(mark_seen.stats.cache_hits.values()))
"""


def test_a_kernel_is_cached_once_compiled_and_works_where_nothing_can_be_written(tmp_path):
    (tmp_path / "package").mkdir()
    assert [run(USE.format(home=str(tmp_path))) for _ in range(2)] == ["0", "1"]
    (tmp_path / "file").write_text("")
    nowhere = USE.format(home=str(tmp_path / "file"))
    assert run(f"import pathlib; pathlib.Path.home = lambda: pathlib.Path({str(tmp_path / 'file')!r})\n{nowhere}") == "0"


def run(script):
    return subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout.strip()
