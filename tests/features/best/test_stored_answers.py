"""`best STORE` for a program: the JSON, and the same from Python. What takes longer is done only if it is asked for."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

import lmsweep
from lmsweep.orchestrator.features.best.standing import RIGHT_MARGIN
from tests.support.command import answer_here, lmsweep_here

STORE = "h200-best-2.7b"


def test_the_json_is_what_the_function_returns_and_the_words_say_the_same() -> None:
    found = json.loads(lmsweep_here("best", STORE, "--price", "H200=3.5", "--format", "json"))
    assert found == json.loads(json.dumps(asdict(lmsweep.best(STORE, prices=["H200=3.5"]))))
    (job,) = found["jobs"]
    words = lmsweep_here("best", STORE, "--price", "H200=3.5")
    assert job["winner"]["settings"] == {"compile": "block", "attention": "sdpa_cudnn"}
    first = words.splitlines()[1]
    assert "compile block, attention sdpa_cudnn" in first and job["can_tell"] is first.startswith("Best")
    assert f"{round(job['winner']['value'], -1):.0f} tokens/s (95 % interval 20960 to 23130" in words
    assert job["low"] < job["winner"]["value"] < job["high"]
    assert job["measured"] == len(job["beaten"]) + 1 and job["beaten"][0]["ratio"] < job["beaten"][-1]["ratio"]
    assert f"{job['winner']['dollars_per_million_tokens']:.4g} dollars per million tokens" in words


def test_the_schema_says_how_close_a_right_answer_is_and_which_cells_count_as_measured() -> None:
    fields = json.loads(lmsweep_here("best", "--schema"))["$defs"]["BestOfJob"]["properties"]
    margin = f"{100 * RIGHT_MARGIN:.0f} %"
    assert all(margin in fields[name]["description"] for name in ("can_tell", "wrong"))
    assert "those counted in `over_limit`; none of `failed`" in fields["measured"]["description"]


def test_neither_memory_nor_the_largest_batch_is_predicted_until_it_is_asked_for(capfd: pytest.CaptureFixture) -> None:
    (job,) = json.loads(lmsweep_here("best", STORE, "--format", "json"))["jobs"]
    assert (job["largest_batch"], job["winner"]["peak_bytes"]) == (None, None)
    assert job["largest_batch_reason"] == "not asked for; --max-batch predicts it"
    words = lmsweep_here("best", STORE)
    assert "peak" not in words and "The largest batch that fits: --max-batch." in words


LARGE = ("h100-devices", "h200-devices", "--where", "model=large", "--where", "context_length=1024")


@pytest.mark.parametrize("goal", ["$/Mtoken", "tokens/s"])
def test_of_two_gpus_one_answer_says_which_is_the_cheapest_and_which_the_fastest_by_which_clock(goal: str) -> None:
    words = lmsweep_here("best", *LARGE, "--goal", goal, "--price", "H100=2.5", "--price", "H200=3.5")
    cheapest = "device NVIDIA H100 80GB HBM3, precision bf16, compile block"
    fastest = "device NVIDIA H200, precision bf16, compile block"
    assert f"\nBest for {goal}: {cheapest if goal == '$/Mtoken' else fastest}\n" in words
    assert f"\nCheapest per token: {cheapest}, 44920 tokens/s, 0.01546 $/Mtoken\nFastest: {fastest}, 59970 " in words
    assert "by wall time, in which the host counts; `compare` judges two GPUs by device time" in words
    assert "ms of wall time per step, of it " in words and "(by wall time, 95 % interval" in words
    front = "money is one combination: device NVIDIA H200" if goal == "$/Mtoken" else "front is the winner"
    assert front in words and "the best in time and money" not in words


def test_a_gpu_without_a_price_is_named_where_others_have_one() -> None:
    done = answer_here("best", *LARGE, "--goal", "$/Mtoken", "--price", "H100=2.5")
    assert done.returncode == 0 and "no price for NVIDIA H200: --price 'NVIDIA H200=DOLLARS' an hour\n" in done.stderr
    assert "no price" not in answer_here("best", *LARGE).stderr


@pytest.mark.slow
def test_with_max_batch_the_largest_batch_is_predicted_and_the_front_has_memory() -> None:
    done = answer_here("best", STORE, "--max-batch")
    assert "The largest batch with which it fits: 25 (predicted; " in done.stdout
    assert "predicted peak 58.96 GiB" in done.stdout
    assert "The Pareto front is the winner: no other is clearly better in time or memory" in done.stdout
    (job,) = lmsweep.best(STORE, max_batch=True).jobs
    assert (job.largest_batch, job.largest_batch_reason, job.winner.peak_is_predicted) == (25, None, True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["h100-devices", "--max-batch"], "--max-batch is about one job; choose one by --where FIELD=VALUE"),
        (["h100-devices", "--recipe"], "--recipe is about one job; choose one by --where FIELD=VALUE"),
        (["h100-devices", "--explain"], "--explain is about one job; choose one by --where FIELD=VALUE"),
        ([STORE, "--budget", "1m"], "is a store, in which nothing runs"),
        ([STORE, "--for", "H100", "--format", "json"], "--format json are about what was"),
        ([STORE, "--for", "H100 SXM", "--recipe"], "json are about what was; leave out these options, or --for"),
        (["quick", "--format", "json"], "--format json is about a store: lmsweep best quick, then lmsweep best re"),
        ([STORE, "--price", "H17=3"], "--price H17: no such device here; the devices are NVIDIA H200"),
        ([STORE, "--price", "H2000=3"], "--price H2000: no such device here; did you mean H200? the devices are"),
        ([STORE, "--for", "H200 SXM", "--goal", "memory"], "--for predicts time and money, not memory"),
        (
            [STORE, "--for", "H100 SXM", "--goal", "$/Mtoken", "--price", "H200=3"],
            "the price of every device; H100 SXM has none",
        ),
        ([STORE, "--for", "H2000"], "--for H2000: no such device"),
        ([STORE, "--with", "other"], "--for H200 names the device to predict"),
        ([STORE, "--goal", "token/s"], "--goal token/s: no such goal; did you mean tokens/s?"),
        ([STORE, "--goal", "$/Mtoken"], "--goal $/Mtoken needs the price of a device"),
        ([STORE, "--subject-to", "peak < 70"], "--subject-to 'peak < 70': write 'peak < 70GB'"),
        ([STORE, "--subject-to", "peak < 70GB", "--subject-to", "peak < 60GB"], "given twice"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_the_options_cannot_be_is_refused_before_anything_is_predicted(
    words: list[str], message: str, tmp_path: Path
) -> None:
    done = answer_here("best", *words, XDG_CACHE_HOME=str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "") and message in done.stderr
    assert not list(tmp_path.rglob("predictions-*")), "each prediction is kept there"
