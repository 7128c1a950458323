"""One sweep on a GPU of Modal; the store is a volume, and the same command resumes. In the folder above, run:

modal run deploy/modal_sweep.py --sweep quick
modal volume get lmsweep results .

Details: docs/clusters.md.
"""

import subprocess

import modal

HOURS = 6

app = modal.App("lmsweep")
image = modal.Image.from_dockerfile("deploy/Dockerfile", context_dir=".").entrypoint([])
volume = modal.Volume.from_name("lmsweep", create_if_missing=True)


# EDIT: the type of GPU. The exclamation mark refuses an H200 in its place, whose results are another device's.
@app.function(image=image, gpu="H100!", cpu=16, memory=65536, volumes={"/volume": volume}, timeout=HOURS * 3600)
def run_sweep(sweep: str) -> int:
    """Run a packaged sweep and return lmsweep's exit code. Results are in the volume even if the sweep fails."""
    try:
        # Ends by itself before Modal would end it.
        words = ["lmsweep", "run", sweep, "--store", "/volume/results", "--budget", f"{HOURS * 60 - 20}m"]
        return subprocess.run(words).returncode
    finally:
        volume.commit()


@app.local_entrypoint()
def main(sweep: str = "quick") -> None:
    """Run a packaged sweep on Modal and exit with lmsweep's exit code."""
    raise SystemExit(run_sweep.remote(sweep))
