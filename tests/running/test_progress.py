"""The line that a run prints for each trial."""

import re

import pytest

from lmsweep.orchestrator.cluster.nodes import Node
from lmsweep.orchestrator.feature import packaged_sweeps
from lmsweep.orchestrator.features.trial.trial_table import show_trial
from lmsweep.orchestrator.planning.plan import make_plan
from lmsweep.orchestrator.running.progress.trial_words import describe, descriptions, outcome, short_values
from lmsweep.orchestrator.sweep.sweep import load_sweep
from lmsweep.orchestrator.terminal import format_seconds
from lmsweep.trials.results.outcome import Status
from lmsweep.trials.results.record import Attempt, Record
from lmsweep.trials.results.roles import varying_fields
from lmsweep.trials.spec.config import Trial, TrialConfig
from lmsweep.trials.spec.words import Precision
from lmsweep.trials.store.store import Store
from tests.support.made_up_results import LAPTOP

HERE = Node(cpus=2, gpus=0, environments={"cpu": LAPTOP})


def test_seconds_are_rounded_before_a_unit_is_chosen():
    words = {5e-4: "500 µs", 9.996e-4: "1 ms", 0.9996: "1.0 s", 59.6: "1 min 00 s", 130.0: "2 min 10 s"}
    words |= {3599.7: "1 h 00 min"}
    assert {seconds: format_seconds(seconds) for seconds in words} == words


def failed(status: Status, said: str, **fields: float) -> Record:
    attempt = Attempt.begin(Trial(config=TrialConfig(d_model=2, **fields), workloads=("noop",), sweep="test"))
    return attempt.failure("noop", status, said, LAPTOP)


def test_a_timeout_shows_the_time_limit_and_not_the_stack():
    said = 'killed when its time was up\n  File "runpy", line 198 in _run_module_as_main'
    assert outcome([failed(Status.TIMEOUT, said, timeout_seconds=90.0)]) == "timeout after 1 min 30 s"


GPU_IS_FULL = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.18 GiB of which 1.21 GiB is "
    "free. Process 77 has 77.90 GiB memory in use. Of the allocated memory 71.30 GiB is allocated by PyTorch, and "
    "6.01 GiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting "
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
)
HOST_IS_FULL = (
    "[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate "
    "81920000000000 bytes. Error code 12 (Cannot allocate memory)"
)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (GPU_IS_FULL, "oom: requested 2.00 GiB with 71.30 GiB allocated; 1.21 GiB of 79.18 GiB were free"),
        (HOST_IS_FULL, "oom: requested 76294 GiB, which this machine could not provide"),
        (
            "host memory: it held 3 GiB, more than the 2 GiB that a trial may hold",
            "oom: host memory: it held 3 GiB, more than the 2 GiB that a trial may hold",
        ),
        ("CUDNN_STATUS_ALLOC_FAILED\nadvice", "oom: CUDNN_STATUS_ALLOC_FAILED"),
    ],
)
def test_an_oom_line_has_requested_and_held_memory_and_the_row_the_whole_error(said, words, capsys):
    row = failed(Status.OOM, said)
    assert outcome([row]) == words
    show_trial([row])
    assert words.removeprefix("oom: ") in capsys.readouterr().out
    assert row.error == said


def test_the_table_of_a_trial_has_the_first_line_of_an_error_and_its_traceback_is_below(capsys) -> None:
    trace = 'Traceback (most recent call last):\n  File "mine.py", line 3\nIndexError: out of range'
    show_trial([failed(Status.ERROR, f"mine.py:3: IndexError: out of range\n{trace}")])
    table, _, below = capsys.readouterr().out.partition("\n\n")
    assert table.endswith("error, mine.py:3: IndexError: out of range") and below.strip() == trace


def test_fields_that_a_model_determines_are_no_columns() -> None:
    def config(model: str, arguments: str, precision: Precision) -> TrialConfig:
        return TrialConfig(model=model, model_code=f"{model}.py:M", model_args=arguments, precision=precision)

    named = [config(model, f'{{"name":"{model}"}}', word) for model in ("a", "b") for word in ("fp32", "bf16")]
    assert varying_fields(named) == ["model", "precision"]
    assert varying_fields([*named, config("a", "{}", "fp32")]) == ["model", "model_args", "precision"]


def test_a_trial_of_own_code_is_named_by_the_arguments_that_differ() -> None:
    texts = ('{"dropout":0.1,"theta":1}', '{"dropout":0.1,"theta":2}')
    configs = [TrialConfig(model="GPT", model_code="gpt.py:GPT", model_args=text) for text in texts]
    names, short = varying_fields(configs), short_values(configs)
    assert [describe(one, names, short) for one in configs] == ["theta 1", "theta 2"]
    assert describe(configs[0], ["model", "model_args"], short_values(configs[:1])) == "model GPT, dropout 0.1, theta 1"


GRID = "  - {{workloads: [{}], axes: {{{}}}, fixed: {{model: tiny, device: cpu, {}}}}}\n"
OF_ITS_PROTOCOL_ONLY_IF_NO_OTHER_FIELD_DIFFERS = (
    [
        ("timing", "context_length: [16, 32]", "timeout_seconds: 900, measure_steps: 5"),
        ("timing", "batch_size: [2, 4]", "timeout_seconds: 3600, measure_steps: 9, precision: bf16"),
        ("timing", "warmup_steps: [0, 1]", "optimizer: sgd, measure_steps: 5"),
    ],
    "context_length 16; context_length 32; batch_size 2; batch_size 4; tiny, warmup_steps 0; tiny, warmup_steps 1",
)
ALL_FIELDS_THAT_VARY_WHICHEVER_GRID_MEASURES_THE_OTHERS = (
    [
        ("timing", "context_length: [16, 32], mode: [train_forward, train_step]", "batch_size: 4"),
        ("timing, memory", "mode: [train_forward, forward_backward]", "batch_size: 4, context_length: 16"),
        ("memory", "batch_size: [4, 8]", "mode: train_step, context_length: 16"),
    ],
    "timing+memory: context_length 16, mode train_forward; timing+memory: context_length 16, mode train_step; "
    "timing: context_length 32, mode train_forward; timing: context_length 32, mode train_step; "
    "timing+memory: mode forward_backward; memory: batch_size 8",
)
TWO_GRIDS_THAT_VARY_ALIKE = (
    [("timing", "context_length: [16, 32]", "batch_size: 4"), ("timing", "context_length: [16, 64]", "batch_size: 8")],
    "context_length 16, batch_size 4; context_length 32; context_length 16, batch_size 8; context_length 64",
)


@pytest.mark.parametrize(
    ("grids", "names"),
    [
        OF_ITS_PROTOCOL_ONLY_IF_NO_OTHER_FIELD_DIFFERS,
        ALL_FIELDS_THAT_VARY_WHICHEVER_GRID_MEASURES_THE_OTHERS,
        TWO_GRIDS_THAT_VARY_ALIKE,
    ],
    ids=("protocol", "all", "alike"),
)
def test_a_trial_is_named_by_the_fields_that_vary_in_its_grid(tmp_path, grids, names: str) -> None:
    (tmp_path / "s.yaml").write_text("name: s\ngrids:\n" + "".join(GRID.format(*one) for one in grids))
    trials = make_plan(load_sweep(str(tmp_path / "s.yaml")), [HERE], Store(str(tmp_path / "none"))).trials
    assert "; ".join(descriptions(trials).values()) == names


def test_each_trial_of_the_packaged_sweeps_has_a_name_of_its_own_without_what_does_not_vary(tmp_path) -> None:
    for name in packaged_sweeps():
        trials = make_plan(load_sweep(name), [HERE], Store(str(tmp_path / "none"))).trials
        found = descriptions(trials)
        assert len({*found.values()}) == len(trials), name
        assert not any(re.search(r"timeout_seconds|measure_steps|max_seconds|cold_l2", one) for one in found.values())
