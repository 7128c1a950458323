"""Measures the changes on a GPU: ``python -m benchmarks.changes.on_gpu OUT [--tiny]``.

Stores, packed as OUT/explain.tar.gz after each of them: short trials without a profile and with one, by turns; then
`changes`, and `again`, some of its configurations once more. --tiny: small sizes on a CPU, to try the script.
"""

import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
RUNS = {
    "plain": ("cost.yaml", "--budget", "60s"),
    "profiled": ("cost.yaml", "--profile", "--budget", "60s"),
    "plain-again": ("cost.yaml", "--budget", "60s"),
    "profiled-again": ("cost.yaml", "--profile", "--budget", "60s"),
    "changes": ("changes.yaml", "--profile", "--budget", "180s"),
    "again": ("again.yaml", "--profile", "--budget", "80s"),
}
TINY = {
    "model: small": "model: tiny",
    "d_model: 768, num_layers: 12, num_heads: 12": "d_model: 64, num_layers: 3, num_heads: 2",
    "device: cuda": "device: cpu",
    "[512, 1024]": "[32, 64]",
    "[1024]": "[64]",
    "context_length: 1024": "context_length: 64",
    "batch_size: 16": "batch_size: 2",
    "batch_size: 8": "batch_size: 2",
    "50304": "512",
    "50257": "500",
    "measure_steps: 15": "measure_steps: 6",
    "max_seconds: 3": "max_seconds: 1",
}


def sweeps(folder: Path, *, tiny: bool) -> None:
    """Write the model and the sweeps to a folder."""
    for path in (HERE / "model.py", HERE / "changes.yaml", HERE / "again.yaml", HERE / "cost.yaml"):
        text = path.read_text()
        for large, small in TINY.items() if tiny and path.suffix == ".yaml" else ():
            text = text.replace(large, small)
        (folder / path.name).write_text(text)


def main() -> None:
    out, tiny = Path(sys.argv[1]), "--tiny" in sys.argv
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sweeps(folder, tiny=tiny)
        for store, (sweep, *options) in RUNS.items():
            began = time.monotonic()
            command = [sys.executable, "-m", "lmsweep", "run", str(folder / sweep), "--no-predict"]
            command += ["--store", str(folder / store), *options]
            code = subprocess.run(command, check=False).returncode
            print(f"{store}: {time.monotonic() - began:.0f} s, exit code {code}", flush=True)
            with tarfile.open(out / "explain.tar.gz", "w:gz") as packed:
                for done in RUNS:
                    if (folder / done).exists():
                        packed.add(folder / done, done)


if __name__ == "__main__":
    main()
