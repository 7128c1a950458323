"""Any text is a sweep, or a request that is refused quickly with a message."""

import random
import time
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lmsweep.orchestrator.feature import packaged_sweeps
from lmsweep.orchestrator.sweep.sweep import EXAMPLE, load_sweep
from lmsweep.trials.spec.config import CONFIG_FIELDS, RequestError, TrialConfig
from lmsweep.trials.spec.config import WORDS as WORDS_OF
from lmsweep.trials.spec.model_sizes import SIZES
from lmsweep.trials.spec.workloads import BUILT_IN
from tests.support.sweeps import error_of

HOSTILE = {
    "alias bomb": (
        "a0: &a0 [x, x, x, x, x, x, x, x, x]\n"
        + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)),
        "s.yaml:1: more than 50000 values once aliases are followed",
    ),
    "a list that holds itself": ("&a [*a]", "s.yaml:1: nested more than 16 deep once aliases are followed"),
    "a mapping that is its own key": ("&a {*a : 1}", None),
    "deep lists": ("[" * 200_000, "s.yaml:1: nested more than 16 deep"),
    "many values": ("[" + "1," * 400_000 + "]", "s.yaml:1: more than 50000 values"),
    "a long file": ("#" * 1_000_001, "s.yaml: too large for a sweep file (more than 1000000 bytes)"),
    "a long number": ("name: " + "9" * 5000, None),
    "code": (
        "!!python/object/apply:os.system ['touch ran']",
        "s.yaml:1: the tag '!!python/object/apply:os.system' is not allowed; a sweep is plain data",
    ),
}


@pytest.mark.parametrize(("text", "message"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_file_is_refused_quickly(sweep_of, text, message):
    began = time.process_time()
    found = error_of(sweep_of, text)
    assert time.process_time() - began < 5
    assert message in (None, found)
    assert len(found) < 10_000
    assert not Path("ran").exists()


WORDS = [
    *("zip", "1..8", "1..9+2", "7..", "seq_len", "adamw"),
    *("name", "grids", "workloads", "axes", "fixed", "exclude", "include", "description", *CONFIG_FIELDS),
    *("timing", "noop", *SIZES, "bf16", "cuda:*", "no", "none", "model", "2.7", "0x_", "1:30", "<<", "=", ""),
]
NUMBERS = st.integers(-2, 2**70) | st.floats() | st.booleans()
LEAVES = st.sampled_from(WORDS) | NUMBERS | st.none() | st.text(max_size=5) | st.dates() | st.binary(max_size=3)
DATA = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(WORDS) | LEAVES, inner, max_size=4),
    max_leaves=20,
)
# Mostly legal, so that whole sweeps come out of it too.
LITERALS = ("precision", "compile", "zero_grad", "mode")
VALUES = {
    **dict.fromkeys(CONFIG_FIELDS, st.sampled_from([1, 2, 4])),
    "attention": st.sampled_from(WORDS_OF["attention"]),
    "optimizer": st.sampled_from(WORDS_OF["optimizer"]),
    "model": st.sampled_from(["tiny", "small", "xl-2026"]),
    **{name: st.sampled_from(get_args(hint)) for name, hint in get_type_hints(TrialConfig).items() if name in LITERALS},
    "device": st.sampled_from(["cpu", "mps", "cuda", "cuda:H200", "cuda:*"]),
}
AXES = st.fixed_dictionaries({}, optional={name: st.lists(value, max_size=3) for name, value in VALUES.items()})
ROWS = st.fixed_dictionaries({}, optional=VALUES)
GRIDS = st.fixed_dictionaries(
    {
        "workloads": st.lists(st.sampled_from([*BUILT_IN]), min_size=1, max_size=2),
        "fixed": ROWS.map(lambda row: {"model": "tiny"} | row),
    },
    optional={
        "axes": AXES,
        "zip": AXES,
        "exclude": st.lists(ROWS, max_size=2),
        "include": st.lists(ROWS, max_size=2) | DATA,
    },
)
SWEEPS = st.fixed_dictionaries({"name": st.just("s"), "grids": st.lists(GRIDS, min_size=1, max_size=2)})
FRAGMENTS = [*"{}[]:,-?&*!|>'\"%@`#\n\t \\~<=\r\0\x85", "&a ", "*a", "!!", "---", "...", "%YAML 1.1\n", '"\\U']


@st.composite
def mangled(draw) -> str:
    """A packaged sweep with a few random cuts and insertions."""
    text = packaged_sweeps()["quick"]
    dice = random.Random(draw(st.integers(0, 2**32)))
    for _ in range(draw(st.integers(1, 6))):
        begin = dice.randrange(len(text) + 1)
        end = begin + dice.choice([0, 0, 1, 2, 10])
        text = text[:begin] + dice.choice(FRAGMENTS + WORDS) + text[end:]
    return text


@pytest.mark.parametrize(
    "texts",
    [
        st.text(max_size=200),
        st.lists(st.sampled_from(FRAGMENTS + WORDS), max_size=40).map("".join),
        mangled(),
        DATA.map(yaml.dump),
        SWEEPS.map(yaml.safe_dump),
    ],
    ids=["text", "fragments", "mangled", "data", "sweeps"],
)
@pytest.mark.parametrize("examples", [20, pytest.param(500, marks=pytest.mark.slow)])
def test_any_text_is_a_sweep_or_a_wrong_request(tmp_path, texts, examples):
    path = tmp_path / "any.yaml"

    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    @given(texts)
    def check(text: str) -> None:
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        try:
            sweep = load_sweep(str(path))
        except RequestError as error:
            message = str(error)
            assert message
            said = message.removesuffix(f"\n{EXAMPLE}")
            assert all(line.startswith(str(path)) for line in said.split("\n"))
            message.encode()
        else:
            assert sweep.trials
            assert all(trial.workloads for trial in sweep.trials)

    check()
