"""Which models run unedited through which workloads, as a Markdown table.

    python benchmarks/own_models.py [--device cuda] [--no-compile] [MODEL ...]

The models are those of tests/code/folder: small configurations of transformers' models, and files of one page. Each
cell is measured: `yes`, or the reason why not. The column `plan` compares the predicted peak with the measured one.
--no-compile leaves out the column `compile block`, which needs a compiler and minutes.
"""

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch

from lmsweep.trials.bench.run_trial import run_here
from lmsweep.trials.code.digest import code_folder
from lmsweep.trials.code.importing import use_code
from lmsweep.trials.prediction.peak_memory import predict
from lmsweep.trials.results.outcome import error_line
from lmsweep.trials.results.record import Record, Row
from lmsweep.trials.spec.config import Trial, TrialConfig

CODE = code_folder(Path(__file__).parents[1] / "tests" / "code" / "folder")
MODELS = {
    "GPT-2": "hf:hf/gpt2.json",
    "Llama": "hf:hf/llama.json",
    "Qwen3": "hf:hf/qwen3.json",
    "Gemma": "hf:hf/gemma.json",
    "Mixtral": "hf:hf/mixtral.json",
    "Mamba": "hf:hf/mamba.json",
    "nanoGPT-like": "zoo.py:NanoGPT",
    "nn.TransformerEncoder": "zoo.py:Encoder",
    "convolutional": "zoo.py:ConvModel",
    "state-space-like scan": "zoo.py:ScanModel",
}
COLUMNS = ("timing", "memory", "plan, against the measured peak", "profile", "compile block")


def main() -> None:
    """Print the table of the models that the command names, or of all."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("models", nargs="*")
    given = parser.parse_args()
    use_code(CODE)
    print(f"| model | {' | '.join(COLUMNS)} |\n|---|{'---|' * len(COLUMNS)}")
    for name in given.models or MODELS:
        print(f"| {name} |", end="", flush=True)
        for cell in cells(name, device=given.device, compiles=not given.no_compile):
            print(f" {cell} |", end="", flush=True)
        print()


def cells(name: str, *, device: str, compiles: bool) -> Iterator[str]:
    """Yield the cells of one model, in the order of COLUMNS, each once it is measured."""
    config = TrialConfig(
        model=name,
        model_code=MODELS[name],
        device=device,
        vocab_size=512,
        context_length=32,
        batch_size=2,
        attention="naive" if name == "Mamba" else "sdpa",
        warmup_steps=1,
        measure_steps=2,
    )
    yield _verdict(_run(config, "timing"))
    memory = _run(config, "memory")
    yield _verdict(memory)
    yield _compared(config, memory)
    yield _verdict(_run(config, "profile"))
    yield _verdict(_run(replace(config, compile="block"), "timing")) if compiles else "not tried"


def _run(config: TrialConfig, workload: str) -> list[Row]:
    return run_here(Trial(config=config, workloads=(workload,), sweep="own_models", code=CODE))


def _verdict(rows: list[Row]) -> str:
    errors = [row.error or row.status for row in rows if isinstance(row, Record) and row.status != "ok"]
    return error_line(errors[0]) if errors else "yes"


def _compared(config: TrialConfig, memory: list[Row]) -> str:
    metric = "peak_allocated" if config.device_type == "cuda" else "peak_tensors"
    peaks = [
        row.samples[0]
        for row in memory
        if isinstance(row, Record) and (row.phase, row.metric) == ("step", metric) and row.samples
    ]
    try:
        predicted = predict(config).on(torch.cuda.get_device_name() if config.device_type == "cuda" else None).peak
    except Exception as error:  # noqa: BLE001 - whatever the model raises is the cell
        return f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
    return f"{predicted / peaks[0] - 1:+.2%}" if peaks else f"{predicted} B"


if __name__ == "__main__":
    main()
