"""What `lmsweep check` says of an attention that `lmsweep init` has put into a sweep works when it is pasted."""

import re
from pathlib import Path

import pytest

from tests.support.command import answer_here, lmsweep_here

pytestmark = pytest.mark.usefixtures("one_core")

CODE = """
import torch

def scores(q, k):
    return q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5

def masked(q, k):
    return scores(q, k).masked_fill(torch.ones(q.shape[-2], q.shape[-2], dtype=torch.bool).triu(1), -torch.inf)

def swapped(*inputs):
    return (x.transpose(1, 2) for x in inputs)
"""
ATTENTIONS = {
    "masks-itself": "mine(q, k, v): return masked(q, k).softmax(-1) @ v",
    "masks-itself-heads-last": (
        "mine(q, k, v):\n    q, k, v = swapped(q, k, v)\n    return (masked(q, k).softmax(-1) @ v).transpose(1, 2)"
    ),
    "heads-last": (
        "mine(q, k, v):\n    q, k, v = swapped(q, k, v)\n    return (scores(q, k).softmax(-1) @ v).transpose(1, 2)"
    ),
    "always-unmasked": "mine(q, k, v, is_causal): return scores(q, k).softmax(-1) @ v",
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if "heads-last" in name else ()) for name in ATTENTIONS]
)
def test_what_check_says_of_an_attention_works_when_it_is_pasted(name: str, here: Path) -> None:
    code, sweep = here / "attention.py", here / "lmsweep.yaml"
    code.write_text(f"{CODE}\ndef {ATTENTIONS[name]}\n")
    lmsweep_here("init")
    said = answer_here("check", sweep).stdout
    if pasted := re.search(r"(def attend\(.*\): return .*?), (?:and )?name attend", said):
        code.write_text(f"{code.read_text()}\n{pasted[1]}\n")
    named = "attend" if pasted else "mine"
    text = sweep.read_text().replace("attention:mine", f"attention:{named}")
    if causal := re.search(r"measure causal: (true|false)", said):
        text = re.sub(r"causal: (true|false)", f"causal: {causal[1]}", text)
    assert text != sweep.read_text(), said
    sweep.write_text(text)
    assert "no errors" in lmsweep_here("check", sweep), said
