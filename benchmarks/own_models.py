"""Which models run unedited through which workloads, as a Markdown table.

    python benchmarks/own_models.py [MODEL ...]

The models are those of tests/code/folder: small configurations of transformers' models, and files of one page. Each
cell is measured: `yes`, or the reason why not. The column `plan` compares the predicted peak with the measured one.
"""

import sys
from pathlib import Path

from lmsweep.trials.bench.run import run_here
from lmsweep.trials.code.digest import code_folder
from lmsweep.trials.code.importing import use_code
from lmsweep.trials.prediction.peak_memory import predict
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
COLUMNS = ("timing", "memory", "profile", "compile block", "plan")


def main() -> None:
    """Print the table of the models that the command names, or of all."""
    use_code(CODE)
    print(f"| model | {' | '.join(COLUMNS)} |\n|---|{'---|' * len(COLUMNS)}")
    for name in sys.argv[1:] or MODELS:
        print(f"| {name} | {' | '.join(cells(name))} |", flush=True)


def cells(name: str) -> list[str]:
    """Return the cells of one model, in the order of COLUMNS."""
    config = TrialConfig(
        model=name,
        model_code=MODELS[name],
        vocab_size=512,
        context_length=32,
        batch_size=2,
        attention="naive" if name == "Mamba" else "sdpa",
        warmup_steps=1,
        measure_steps=2,
    )
    compiled = TrialConfig(**{**vars(config), "compile": "block"})
    memory = _run(config, "memory")
    rows = [_run(config, "timing"), memory, _run(config, "profile"), _run(compiled, "timing")]
    return [*map(_verdict, rows), _compared(config, memory)]


def _run(config: TrialConfig, workload: str) -> list[Row]:
    return run_here(Trial(config=config, workloads=(workload,), sweep="own_models", code=CODE))


def _verdict(rows: list[Row]) -> str:
    errors = [row.error or row.status for row in rows if isinstance(row, Record) and row.status != "ok"]
    return errors[0].strip().splitlines()[-1] if errors else "yes"


def _compared(config: TrialConfig, memory: list[Row]) -> str:
    peaks = [
        row.samples[0]
        for row in memory
        if isinstance(row, Record) and (row.phase, row.metric) == ("step", "peak_tensors") and row.samples
    ]
    try:
        predicted = predict(config).peak
    except Exception as error:  # noqa: BLE001 - whatever the model raises is the cell
        return f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
    return f"{predicted / peaks[0] - 1:+.2%}" if peaks else f"{predicted} B"


if __name__ == "__main__":
    main()
