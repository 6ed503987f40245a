"""What needs a process of its own: peak memory, and what starting costs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from experiments.bench.tables import BenchTable

_FIT = """
import numpy as np
from quapy_nemsis import NEMSISClassifier
def status(key):
    return next(int(l.split()[1]) for l in open("/proc/self/status") if l.startswith(key)) * 1024
X = np.random.default_rng(0).random((ROWS, 54))
y = X[:, 0] > 0.5
NEMSISClassifier("q", eta0=0.1, radius=np.inf, n_passes=1).fit(X[:100], y[:100])
open("/proc/self/clear_refs", "w").write("5")
before = status("VmRSS")
NEMSISClassifier("q", eta0=0.1, radius=np.inf, n_passes=2).fit(X, y)
print(status("VmHWM") - before)
"""

#: A stream of so many bytes of float64 that are made as they are read; what is printed is the size of the process when
#: it starts, after the imports, and its peak.
STREAM = """
def status(key):
    return next(int(l.split()[1]) for l in open("/proc/self/status") if l.startswith(key)) * 1024
start = status("VmRSS")
import numpy as np
from quapy_nemsis import NEMSISClassifier
from quapy_nemsis.streaming import fit_stream, from_iterable, shuffled
imported = status("VmRSS")
rng = np.random.default_rng(0)
base = rng.normal(size=(8192, 50))
def chunks():
    for _ in range(max(int(BYTES) // base.nbytes, 1)):
        X = base * rng.uniform(0.5, 1.5, size=(len(base), 1))
        yield X, X[:, 0] + 0.5 * rng.normal(size=len(base)) > 1.0
progress = fit_stream(
    NEMSISClassifier("q"), shuffled(from_iterable(chunks), 20_000), classes=[False, True],
    checkpoint=PATH, every_rows=1_000_000,
)
print(start, imported, status("VmHWM"), progress.rows)
"""

_START = """
import time
import numpy as np
from quapy_nemsis import NEMSISClassifier
X = np.random.default_rng(0).random((1000, 20))
y = X[:, 0] > 0.5
for _ in range(2):
    begin = time.perf_counter()
    NEMSISClassifier("kld", eta0=0.1, radius=np.inf).fit(X, y)
    print(time.perf_counter() - begin)
"""


def run_python(code: str, **environment: str) -> list[float]:
    """Return the numbers that a new Python process prints."""
    process = subprocess.run(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,  # what goes wrong is to be seen
        text=True,
        check=True,
        env={**os.environ, **environment},
    )
    return [float(word) for word in process.stdout.split()]


def can_measure_memory() -> bool:
    """Tell whether the system reports to a process its peak of memory."""
    return Path("/proc/self/clear_refs").exists()


def stream_memory(gigabytes: float, folder: Path) -> tuple[float, float, float, int]:
    """Return the megabytes of a process at its start, after the imports and at its peak, and the rows of its stream."""
    code = STREAM.replace("BYTES", str(gigabytes * 2**30))
    # A checkpoint that is there already would be refused.
    with TemporaryDirectory(dir=folder) as own:
        code = code.replace("PATH", repr(str(Path(own) / "checkpoint.npz")))
        start, imported, peak, rows = run_python(code)
    return start / 2**20, imported / 2**20, peak / 2**20, int(rows)


def memory(n_rows: int, gigabytes: float, folder: Path) -> BenchTable:
    """Measure the peak memory of a fit beyond its X, and of a stream beyond the start of the interpreter."""
    (peak,) = run_python(_FIT.replace("ROWS", str(n_rows)))
    start, imported, highest, rows = stream_memory(gigabytes, folder)
    found = {
        f"fit beyond X, {n_rows:,} x 54": (peak / 2**20, n_rows),
        f"imports beyond the interpreter's {start:.0f} MB": (imported - start, np.inf),
        f"stream of {gigabytes:g} GB, {rows:,} x 50, beyond the interpreter": (
            highest - start,
            rows,
        ),
    }
    lines = [
        {"what": what, "MB": size, "bytes a row": size * 2**20 / number}
        for what, (size, number) in found.items()
    ]
    return BenchTable("memory", "Peak memory", lines)


def start(repeats: int) -> BenchTable:
    """Measure what the first fit in a new process costs beyond the second."""
    uncached = run_python(_START, QUAPY_NEMSIS_CACHE="0")
    warm = min(run_python(_START) for _ in range(max(repeats // 2, 1)))
    return BenchTable(
        "start",
        "First fit in a new process beyond the second",
        [
            {"kernels": "compiled", "seconds": uncached[0] - uncached[1]},
            {"kernels": "from the disk cache", "seconds": warm[0] - warm[1]},
        ],
    )
