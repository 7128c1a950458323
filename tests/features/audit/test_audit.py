"""`lmsweep audit`: can this number be true, and what would explain it."""

import csv
import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import jsonschema
import pytest

import lmsweep
from lmsweep.orchestrator.features.audit.asking import asked_of
from lmsweep.orchestrator.features.audit.case import Case
from lmsweep.orchestrator.features.audit.causes.explanations import as_full_training
from lmsweep.orchestrator.features.audit.claims.read_claim import claim_of
from lmsweep.orchestrator.features.audit.prediction import Predicted, predicted
from lmsweep.orchestrator.features.audit.sources import MOST_BYTES
from lmsweep.orchestrator.features.audit.verdict import Audited, audited, judged
from lmsweep.trials.spec.quantities import gib
from tests.support.browser import beyond_a_screen
from tests.support.command import answer_here, lmsweep_here, refused_here

pytestmark = pytest.mark.usefixtures("warm")

HERE = Path(__file__).parent
SMALL = {"model": "small", "gpus": "H100", "context": "1024", "batch": "32", "compile": "yes", "checkpointing": "none"}
"""A step that its GPU decides."""


def read(name: str) -> list[dict[str, str]]:
    with (HERE / name).open(newline="") as file:
        return [{key: cell for key, cell in row.items() if cell} for row in csv.DictReader(file)]


@cache
def small() -> Predicted:
    claim = claim_of(SMALL | {"tokens/s": "1"})
    found = predicted(claim, asked_of([claim]))
    assert isinstance(found, Predicted), found
    return found


def said_of(**stated: str) -> Audited:
    """What audit says of a claim about the small step, whose prediction is made once."""
    claim = claim_of(SMALL | {name.replace("_per_", "/"): text for name, text in stated.items()})
    return judged(Case(claim=claim, predicted=small()))


def test_a_number_within_the_prediction_is_possible_and_one_far_below_it_slow() -> None:
    rate = small().middle
    assert said_of(tokens_per_s=f"{rate}").verdict == "possible"
    slow = said_of(tokens_per_s=f"{rate / 3}")
    assert slow.verdict == "slow" and slow.explanations
    assert slow.predicted_between and slow.predicted_between[0] > rate / 3


def test_a_number_beyond_the_peak_is_impossible_and_so_is_one_that_no_stack_reaches() -> None:
    bound = said_of(tokens_per_s="1").bound
    assert bound
    beyond = said_of(tokens_per_s=f"{2 * bound}")
    assert beyond.verdict == "impossible" and "2 times what H100 SXM can do at its peak" in beyond.why
    fast = said_of(tokens_per_s=f"{max(small().high, small().tuned[1]) * 1.1}")
    assert fast.verdict == "impossible" and "above what any stack is known to reach" in fast.why


def test_tokens_and_steps_that_disagree_contradict_and_the_likelier_is_named() -> None:
    rate, tokens = small().middle, 32 * 1024
    agreeing = said_of(tokens_per_s=f"{rate}", step_time=f"{tokens / rate}")
    assert agreeing.verdict == "possible"
    found = said_of(tokens_per_s=f"{rate / 4}", step_time=f"{tokens / rate}", accumulate="1")
    assert (found.verdict, found.likelier) == ("contradicts itself", "step time")


def test_an_mfu_by_any_usual_count_agrees_and_one_over_the_sparse_peak_does_not() -> None:
    rate = small().middle
    shares = {one.convention: one.share for one in said_of(tokens_per_s=f"{rate}").utilisation}
    for name in ("full", "causal", "6n", "6p"):
        assert said_of(tokens_per_s=f"{rate}", mfu=f"{shares[name]}").verdict == "possible", name
    halved = said_of(tokens_per_s=f"{rate}", mfu=f"{shares['full'] / 2}")
    assert halved.verdict == "contradicts itself"
    assert halved.explanations[0].cause == "sparse peak"
    assert "dense bf16 is 312 TFLOP/s on an A100" in halved.explanations[0].look


@pytest.mark.parametrize("factor", [1.3, 2.9])
def test_a_factor_that_may_be_any_is_found_wherever_it_is(factor: float) -> None:
    rate, tokens = small().middle, 32 * 1024
    found = said_of(tokens_per_s=f"{factor * rate}", step_time=f"{tokens / rate}", accumulate="1")
    causes = {one.cause: one for one in found.explanations}
    assert causes["padding counted"].factor == pytest.approx(factor, rel=0.01)
    assert f"only {1 / factor:.0%} of the tokens are no padding" in causes["padding counted"].evidence


def test_an_mfu_without_a_rate_is_doubted_for_its_peak_before_its_time() -> None:
    share = said_of(tokens_per_s=f"{small().middle}").utilisation[0].share
    assert said_of(mfu=f"{share / 2}").explanations[0].cause == "sparse peak"
    assert said_of(mfu=f"{share * 989.4 / 312}").explanations[0].cause == "another GPU's peak"


def test_a_peak_that_is_stated_is_the_one_by_which_the_mfu_divides() -> None:
    rate = small().middle
    share = said_of(tokens_per_s=f"{rate}").utilisation[0].share
    assert said_of(tokens_per_s=f"{rate}", mfu=f"{share * 989.4 / 312}", peak="312").verdict == "possible"


def test_an_hfu_counts_what_is_computed_again() -> None:
    mfu, hfu = (said_of(checkpointing="block", **{name: "40%"}) for name in ("mfu", "hfu"))
    assert hfu.rates["MFU"] == pytest.approx(mfu.rates["MFU"] * 3 / 4), "four forward passes, not three"
    first = hfu.utilisation[0]
    assert first.convention == "hardware" and first.share == pytest.approx(0.4)
    assert said_of(hfu="40%").rates == said_of(mfu="40%").rates, "nothing is computed again"


@pytest.mark.slow
def test_what_is_not_stated_is_varied_and_said() -> None:
    claim = claim_of({name: SMALL[name] for name in ("model", "gpus", "context")} | {"tokens/s": "100000"})
    (found,) = audited([claim])
    assert any(text.startswith("batch not stated: 1 to 16 give ") for text in found.varied)
    assert any("torch.compile not stated" in text for text in found.varied)


@pytest.mark.slow
def test_where_a_step_fits_by_checkpointing_alone_the_audit_assumes_it_as_fits_does() -> None:
    asked = ["--model", "llama-3.1-8b", "--context", "8192", "--tokens/s", "6000", "--gpus", "H100"]
    done = answer_here("audit", *asked)
    fits = ("fits", "llama-3.1-8b", "--context", "8192", "--for", "H100", "--method", "full", "--format", "json")
    fit, plain = (json.loads(answer_here(*fits, *more).stdout)["fits"][0]
                  for more in ((), ("--set", "checkpointing=none")))  # fmt: skip
    assert (fit["checkpointing"], plain["fits"]) == ("block", False)
    verdict, _, subject, assumed, *_ = done.stdout.splitlines()
    assert verdict.startswith("possible: ")
    assert subject == "llama-3.1-8b on 1 H100 SXM, 8,192 tokens of context"
    needed, room = gib(plain["peak_bytes"]), gib(plain["budget_bytes"])
    assert assumed == (f"activation checkpointing not stated: of each block; without it one sequence needs {needed} "
                       f"of the {room} of a GPU")  # fmt: skip
    stated = answer_here("audit", *asked, "--checkpointing", "none").stdout
    assert stated.startswith("cannot tell: ") and "it does not fit, as `lmsweep fits` says, too: without act" in stated


@pytest.mark.slow
def test_what_fits_in_the_leanest_trainers_alone_says_so() -> None:
    """`fits` called LoRA of 70B on an H200 too large, and `audit` possible."""
    asked = ("--model", "llama-3.1-8b", "--gpus", "1xH100", "--context", "16k", "--tokens/s", "4000")
    said = answer_here("audit", *asked).stdout
    assert said.startswith("possible: ")
    assert "of each block; even with activation checkpointing one sequence needs" in said
    assert "of a GPU in lmsweep's loop, less in the leanest trainers" in said


@pytest.mark.slow
def test_what_fits_without_checkpointing_is_not_assumed_to_have_it() -> None:
    claim = claim_of({**SMALL, "tokens/s": "1", "checkpointing": None})
    found = predicted(claim, asked_of([claim]))
    assert isinstance(found, Predicted) and found.middle == pytest.approx(small().middle)
    assert found.varied[0] == "activation checkpointing not stated: none, with which it fits"


def test_without_a_model_numbers_can_contradict_each_other() -> None:
    stated = {"gpus": "8xH100", "batch": "4", "context": "4096", "step_time": "1.93s"}
    (wrong,), (right,) = (lmsweep.audit(**stated, tokens_per_second=rate) for rate in (8 * 68_000, 68_000))
    assert (wrong.verdict, wrong.explanations[0].cause) == ("contradicts itself", "per node or per GPU")
    assert right.verdict == "cannot tell" and "the model is not stated" in right.why
    asked = ("--gpus", "8xH100", "--step-time", "1.93s", "--tokens-per-step", "131072", "--global-batch", "32")
    assert "the model is not stated" in lmsweep_here("audit", *asked, "--context", "4096", "--tokens/s", "68k")


def test_a_count_of_parameters_has_a_bound_but_no_prediction() -> None:
    (found,) = lmsweep.audit(model="70B", gpus="GB10", context=2048, method="qlora", tokens_per_second=5079.4)
    assert found.verdict == "impossible" and found.bound
    assert 10 < 5079.4 / found.bound < 15
    (below,) = lmsweep.audit(model="70B", gpus="GB10", context=2048, method="qlora", tokens_per_second=100)
    assert below.verdict == "cannot tell" and "only the number of parameters is known" in below.why


def test_the_command_says_the_verdict_first_and_exits_with_1_for_what_cannot_be() -> None:
    asked = ["--model", "8B", "--gpus", "H100", "--context", "2048", "--tokens/s"]
    done = answer_here("audit", *asked, "58000")
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("impossible: 58,000 tokens/s is ")
    assert "peak 989 TFLOP/s (dense bf16 of H100 SXM: NVIDIA H100" in done.stdout
    assert "what would explain it, the likeliest first:" in done.stdout
    assert lmsweep_here("audit", *asked, "5800")
    assert lmsweep_here("audit", "--model", "8B", "--gpus", "H100").startswith("cannot tell: not stated: tokens/s")
    assert "nothing is claimed" in refused_here("audit")


def test_a_table_is_many_claims_and_one_that_cannot_be_closes_the_gate(tmp_path: Path) -> None:
    path = tmp_path / "claims.csv"
    path.write_text("claim,model,gpus,seq_len,tokens/s/gpu\nours,8B,8xH100,2048,7000\ntheirs,8B,8xH100,2048,70000\n")
    done = answer_here("audit", path)
    assert done.returncode == 1 and "2 claims: 1 cannot tell, 1 impossible" in done.stdout, done.stderr
    for table, said in (
        ("claim,model,gpus,seq_len,tokens/s/gpu\nours,8B,8xH100,2048,fast\n", "2: tokens/s/gpu fast: write a number"),
        ("model,gpus,tokens/s\n\n8B,H100,1\n8B,H1000,1\n", "4: --gpus H1000: no such device"),
        ("model,gpus,tokens/s,\n8B,H100,1,\n8B,H100,1,,1\n", "3: it has more cells than the first line has names"),
        ("model,,gpus,tokens/s\n8B,ours,H100,1\n", "2: no claim has a column without a name"),
        (f'model,gpus,tokens/s\n"8B,H100,1\n{"8B,H100,2" * 20_000}', "2: field larger than field limit (131072)"),
    ):
        path.write_text(table)
        assert f"{path}, line {said}" in refused_here("audit", path)
    path.write_text("model,gpus,tokens/s,\n8B,H100,1,\n")
    assert lmsweep_here("audit", path).startswith("cannot tell: below the bound")


def test_of_a_log_that_is_too_large_nothing_is_read_from_a_file_or_from_standard_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = tmp_path / "train.log"
    with large.open("w+") as file:
        file.truncate(MOST_BYTES + 1)
        monkeypatch.setattr("sys.stdin", file)
        for name in (str(large), "-"):
            assert f"{name}: it has more than 100 MB; give a part of it" in refused_here("audit", name)


@pytest.mark.slow
def test_the_json_is_that_of_the_schema_and_becomes_a_page(tmp_path: Path) -> None:
    answer, page = tmp_path / "audit.json", tmp_path / "audit.html"
    asked = ("--gpus", "RTX 4090", "--model", "8B", "--format", "json")
    answer.write_text(lmsweep_here("audit", HERE / "logs/axolotl.log", *asked))
    jsonschema.validate(json.loads(answer.read_text()), json.loads(lmsweep_here("audit", "--schema")))
    lmsweep_here("report", answer, "-o", page)
    text = page.read_text("utf-8")
    assert "read from the log:" in text and "tokens/train_per_sec_per_gpu" in text and "<script" not in text
    assert beyond_a_screen(page, 390) == []


@pytest.fixture(scope="module")
def honest() -> list[Case]:
    """Public rows."""
    claims = [claim_of(row) for row in read("honest.csv")]
    answers, cases = asked_of(claims), []
    for claim in claims:
        found = predicted(claim, answers)
        assert isinstance(found, Predicted), found
        cases.append(Case(claim=claim, predicted=found))
    return cases


@pytest.mark.slow
@pytest.mark.parametrize(("factor", "verdict"), [(1.0, "possible"), (4.0, "impossible"), (1 / 3, "slow")])
def test_public_rows_are_possible_and_with_a_factor_are_flagged(
    honest: list[Case], factor: float, verdict: str
) -> None:
    for case in honest:
        stated = {name: value * factor for name in ("tokens_per_second", "tokens_per_second_per_gpu", "mfu")
                  if (value := getattr(case.claim, name))}  # fmt: skip
        seconds = case.claim.step_seconds and case.claim.step_seconds / factor
        claim = replace(case.claim, **stated, step_seconds=seconds)
        assert judged(replace(case, claim=claim)).verdict == verdict, claim


@pytest.mark.slow
def test_public_rows_with_the_rate_of_all_gpus_for_one_are_explained_so(honest: list[Case]) -> None:
    cases = [case for case in honest if case.claim.count > 1 and case.claim.tokens_per_second_per_gpu]
    for case in cases:
        rate = (case.claim.tokens_per_second_per_gpu or 0) * case.claim.count
        found = judged(replace(case, claim=replace(case.claim, tokens_per_second_per_gpu=rate)))
        assert "per node or per GPU" in [one.cause for one in found.explanations[:3]], case.claim
    assert cases


@pytest.mark.parametrize("convention", ["full", "hardware"])
def test_lora_that_is_counted_as_full_training_has_three_passes_for_two_by_any_convention(convention: str) -> None:
    stated = {"method": "lora", "checkpointing": "block", "mfu": "60%", "convention": convention}
    (counted,) = as_full_training(Case(claim=claim_of(SMALL | stated), predicted=None))
    assert counted.least == pytest.approx(3 / 2)


@pytest.mark.slow
def test_experts_on_ranks_of_their_own_are_not_held_to_the_time_of_sharded_weights() -> None:
    stated = {"model": "openai/gpt-oss-120b", "gpus": "64xGB200", "context": "4096", "batch": "4", "precision": "fp8",
              "global_batch": "1280", "compile": "yes", "attention": "te", "ep": "64"}  # fmt: skip
    rows = [claim_of(stated | {"tokens/s/gpu": rate, "tflops": flops})
            for rate, flops in (("28672", "934"), ("18304", "597"))]  # fmt: skip
    assert [one.verdict for one in audited(rows)] == ["possible", "possible"]


@pytest.mark.slow
def test_public_threads_whose_cause_was_found() -> None:
    rows = read("threads.csv")
    claims = [claim_of({name: cell for name, cell in row.items() if name not in ("thread", "cause")}) for row in rows]
    places = []
    for row, found in zip(rows, audited(claims), strict=True):
        causes = [one.cause for one in found.explanations]
        places.append(causes.index(row["cause"]) if row["cause"] in causes else len(causes) + 3)
    found_at = dict(zip((row["thread"] for row in rows), places, strict=True))
    assert sum(place == 0 for place in places) >= 16, found_at
    assert sum(place < 3 for place in places) >= 17, found_at
