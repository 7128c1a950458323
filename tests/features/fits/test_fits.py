"""`lmsweep fits`: which GPU and method fits, how fast and for how much."""

import html
import json
import re
import shlex
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import lmsweep
from lmsweep.orchestrator.features.audit.claims.read_claim import claim_of
from lmsweep.orchestrator.features.fits.fit import Fit, FitsOutput
from lmsweep.orchestrator.features.fits.fit_request import FitRequest, recipe_of, shipped_names
from lmsweep.orchestrator.features.fits.fits_page import fits_listing
from lmsweep.orchestrator.sweep.sweep import load_sweep, single_trial
from lmsweep.trials.analytic.rates.intervals import peak_of_others
from lmsweep.trials.analytic.rates.rate_set import LAUNCHES
from lmsweep.trials.results.environment import Fingerprint
from lmsweep.trials.results.measurement import Measurement
from lmsweep.trials.results.record import Attempt
from lmsweep.trials.results.record_json import json_values
from lmsweep.trials.results.roles import MODEL
from lmsweep.trials.spec.config import COMBINATION_FIELDS, RequestError
from lmsweep.trials.spec.installing import install_extra
from lmsweep.trials.store.store import Store
from tests.support.browser import beyond_a_screen
from tests.support.command import answer_here, lmsweep_here, refused_here

pytestmark = pytest.mark.usefixtures("warm")

SHORT = ("--context", "256")


def test_the_best_line_is_first_and_what_does_not_fit_says_what_would():
    said = lmsweep_here(
        "fits", "2.7b", *SHORT, "--for", "T4,4090,H100", "--method", "full", "--tokens", "1B", "--price", "H100=2.5",
        "--set", "checkpointing=none", "--format", "json",
    )  # fmt: skip
    first, *others = json.loads(said)["fits"]
    by_name = {one["device_name"]: one for one in (first, *others)}

    assert (first["device_name"], first["fits"]) == ("H100 SXM", True)
    low, high = first["tokens_per_second_between"]
    assert low < first["tokens_per_second"] < high
    assert first["batch"] * 256 / first["step_seconds"] == pytest.approx(first["tokens_per_second"])
    least, most = first["tokens_per_second_of_others_between"]
    assert least < first["tokens_per_second_of_others"] < most and most / least > high / low
    assert first["dollars"] == pytest.approx(2.5 * first["hours"])
    assert first["hours"] == pytest.approx(1e9 / first["tokens_per_second"] / 3600)
    assert by_name["RTX 4090"]["missing_bytes"] > 0
    assert by_name["RTX 4090"]["remedy"] == "H100 SXM"
    assert "no bfloat16" in by_name["T4"]["reason"] or "7.5" in by_name["T4"]["reason"]


def test_a_model_is_named_in_fits_as_in_audit():
    by_hub, by_name = (FitRequest(name, methods=["full"]).trial() for name in ("Qwen/Qwen3-0.6B", "qwen3-0.6b"))
    assert by_hub.config == by_name.config
    near = "name a model, such as llama-3.1-8b, 8b-2026, qwen3-8b"
    assert near in refused_here("fits", "8B", "--for", "H100")
    audited = lmsweep_here("audit", "--model", "8B", "--gpus", "H100", "--context", "8k", "--tokens/s", "5k")
    assert "of 8B only the number of parameters is known; " + near.replace("a model", "the model") in audited
    assert "no such model; did you mean llama-3.1-8b?" in refused_here("fits", "lama-3.1-8b", "--for", "H100")


@pytest.mark.parametrize("name", ["Qwen2.5-0.5B-Instruct", "gpt2-medium", "d20"])
def test_a_sweep_takes_the_names_of_models_that_fits_takes(name: str, tmp_path: Path) -> None:
    asked = FitRequest(name, methods=["full"]).trial().config
    planned = single_trial([f"model={name}", "workloads=timing"]).config
    assert [getattr(planned, one) for one in MODEL] == [getattr(asked, one) for one in MODEL]
    (tmp_path / "mine.yaml").write_text(
        f'name: s\ngrids:\n  - {{workloads: [timing], axes: {{model: ["{name}", tiny]}}, fixed: {{device: cpu}}}}\n'
    )
    mine, tiny = (one.config for one in load_sweep(str(tmp_path / "mine.yaml")).trials)
    assert mine.vocab_size == asked.vocab_size and (tiny.model, tiny.num_kv_heads) == ("tiny", None)


def test_another_name_is_no_model_of_a_sweep_nor_one_on_the_hub_which_may_mean_two() -> None:
    of_hub = r"did you mean qwen2.5-0.5b\? .* hf:Qwen/Qwen2.5-0.5B is that of transf"
    wrong = ("qwen2.5-0.6", "7b", "../tiny", "tiny/../../x", "x" * 5000, "a\nb")
    for name, words in {**dict.fromkeys(wrong, "is not a model"), "Qwen/Qwen2.5-0.5B": of_hub}.items():
        with pytest.raises(RequestError, match=words):
            single_trial([f"model={name}", "workloads=timing"])


def test_fits_names_the_attention_and_loss_that_it_assumes() -> None:
    """A plan's default is another attention, so that the two differ."""
    assert "steps with attention=sdpa and loss=cross_entropy" in FitRequest("tiny").assumed()[0]
    assert "steps with attention=naive and loss=" in FitRequest("tiny", settings=("attention=naive",)).assumed()[0]


def test_a_context_of_8k_is_8192_tokens_in_fits_and_in_audit():
    assert FitRequest("tiny", context="8k").trial().config.context_length == claim_of({"context": "8k"}).context == 8192
    for verb in (["fits", "tiny"], ["audit", "--model", "tiny"]):
        wrong = refused_here(*verb, "--context", "8z")
        assert "context 8z: write the tokens of a sequence, such as 8192 or 8k" in wrong


@pytest.mark.parametrize("key", ["n_positions", "max_position_embeddings"])
def test_without_a_context_a_model_of_few_positions_has_all_of_them_and_says_so(key: str, tmp_path: Path) -> None:
    for model_type, positions in (("gpt2", 512), ("llama", 131_072)):
        (tmp_path / f"{model_type}.json").write_text(
            json.dumps({"model_type": model_type, "num_layers": 2, key: positions})
        )
    asked = {"methods": ["full"], "code": str(tmp_path)}
    short, usual = FitRequest("hf:gpt2.json", **asked).checked(), FitRequest("hf:llama.json", **asked).checked()
    assert (short.trial().config.context_length, usual.trial().config.context_length) == (512, 4096)
    assert "context: the 512 positions of the model, fewer than the usual 4,096" in short.assumed()
    long = FitRequest("hf:gpt2.json", context="1k", **asked)
    assert long.trial().config.context_length == 1024
    assert "hf:gpt2.json has 512 positions: if they are learned, no step of 1,024 tokens runs" in long.assumed()
    more = FitRequest("hf:gpt2.json", settings=[f"model_args.{key}=1024"], **asked)
    assert more.checked().context == 1024
    assert not [one for one in (*usual.assumed(), *FitRequest("tiny").assumed()) if "positions of" in one]


ASKED = ("fits", "tiny", *SHORT, "--for", "H100,B200,4090", "--method", "full", "--tokens", "1B", "--price", "H100=2.5",
         "--set", "checkpointing=none")  # fmt: skip


@pytest.fixture(scope="module")
def own() -> list[dict[str, Any]]:
    return json.loads(answer_here(*ASKED, "--format", "json").stdout)["fits"]


@pytest.mark.slow
def test_the_table_says_precision_clock_and_ranges_and_which_gpu_has_no_price(own: list[dict[str, Any]]) -> None:
    said, first = answer_here(*ASKED).stdout, own[0]
    assert said.splitlines()[1] == "full: weights and AdamW's state in bf16"
    assert "others' tokens/s" in said and "tokens/s, hours and dollars: of lmsweep's own training loop" in said
    assert "without torch.compile (`--set compile=block` predicts compiled steps)" in " ".join(said.split())
    assert not any("without torch.compile" in one for one in FitRequest("tiny", settings=("compile=block",)).assumed())
    least, most = first["hours_between"]
    assert f"{first['hours']:,.3g} ({least:,.3g} to {most:,.3g})" in said
    assert "\nno price for RTX 4090: --price 'RTX 4090=DOLLARS' an hour\n" in said
    assert "of PyTorch's public trainers, whose interval is at least as wide, as they differ." in " ".join(said.split())
    alone = answer_here("fits", "tiny", *SHORT, "--for", "H100", "--method", "full", "--price", "H100=2.5")
    assert "--price without --tokens" in alone.stderr


@pytest.mark.slow
def test_with_a_trainer_hours_dollars_and_the_order_are_of_its_steps(own: list[dict[str, Any]]) -> None:
    named = json.loads(answer_here(*ASKED, "--trainer", "torchtitan", "--format", "json").stdout)["fits"]
    for lines, whose in ((own, ""), (named, "_of_others")):
        for one in lines:
            assert one["hours"] == pytest.approx(1e9 / one[f"tokens_per_second{whose}"] / 3600)
            low, high = one[f"tokens_per_second{whose}_between"]
            assert one["hours_between"] == pytest.approx([1e9 / high / 3600, 1e9 / low / 3600])
        priced, *others = lines
        assert priced["dollars_between"] == pytest.approx([2.5 * one for one in priced["hours_between"]])
        rates = [one[f"tokens_per_second{whose}"] for one in others]
        assert rates == sorted(rates, reverse=True)
    by_all, by_one = ({one["device_name"]: one["tokens_per_second_of_others_between"] for one in lines}
                      for lines in (own, named))  # fmt: skip
    assert by_all.keys() == by_one.keys() and all(by_all[name] != by_one[name] for name in by_all)
    said = " ".join(answer_here(*ASKED, "--trainer", "torchtitan").stdout.split())
    assert "torchtitan's tokens/s" in said and "others' tokens/s" not in said
    assert "tokens/s: of lmsweep's own training loop; torchtitan's tokens/s, hours and dollars: of torchtitan's" in said
    slow = replace(FAST, tokens_per_second_of_others=9e3, tokens_per_second_of_others_between=(8e3, 1e4))
    fast = replace(slow, tokens_per_second_of_others=99e3, tokens_per_second=8e3)
    assert slow.rank(None) < fast.rank(None) and fast.rank("torchtitan") < slow.rank("torchtitan")


def test_a_line_says_whether_other_trainers_fit_too():
    """They need 71 to 142 % of the peak of lmsweep's own loop, by public stacks."""
    sizes = [(2**30, 2**31, True), (2**31 - 1, 2**31, None), (2**32, 2**31, False)]
    lines = [replace(FAST, peak_bytes=peak, peak_bytes_of_others=peak_of_others(peak), budget_bytes=budget)
             for peak, budget, _ in sizes]  # fmt: skip
    assert [one.fits_of_others for one in lines] == [fitting for *_, fitting in sizes]
    assert all(json_values(one)["fits_of_others"] == one.fits_of_others for one in lines)
    shown = fits_listing(FitsOutput(model="tiny", context=64, tokens=None, assumed=[], fits=lines)).frame["fits"]
    assert [*shown] == ["yes", "yes (others perhaps not)", "yes (others not)"]


@pytest.mark.slow
def test_compiled_ranks_name_the_plan_that_predicts_them():
    asked = ["fits", "tiny", *SHORT, "--set", "compile=block", "--set", "optimizer=adamw_foreach", "--for", "H100,B200",
             "--price", "H100=2.5"]  # fmt: skip
    refused = refused_here(*asked, "--gpus", "8", "--method", "full,lora")
    assert "compiled code that several ranks run is not predicted" in refused
    assert "8xB200" in refused and refused.count(": lmsweep plan") == 2
    plan = re.search(r"^lmsweep: full on 8 GPUs: .*: (lmsweep plan .*)$", refused, re.MULTILINE)[1]
    settings = ["compile=block", "checkpointing=none"]
    one, ranks = lmsweep.fits("tiny", context=256, devices=["H100"], gpus=[1, 8], methods=["full"], settings=settings)
    assert one.plan is None and "--set compile=block --set checkpointing=none --for '8xH100 SXM'" in ranks.plan
    shown = fits_listing(FitsOutput(model="tiny", context=256, tokens=None, assumed=[], fits=[one, ranks]))
    assert shown.frame["what would fit"][1] == "as `lmsweep plan` says, below"
    assert any(note.endswith(f": {ranks.plan}") for note in shown.notes)

    planned = lmsweep_here(*shlex.split(plan)[1:], "--format", "json", "--store", "none")
    trials = json.loads(planned)["trials"]
    assert all(one["expected_step_seconds"] > 0 and one["device_name"] == "H100 SXM" for one in trials)
    assert [one["config"]["checkpointing"] for one in trials] == ["none", "block"]
    asked_for = FitRequest("tiny", context=256, methods=["full"], settings=["compile=block", "optimizer=adamw_foreach"])
    ranks = replace(asked_for.trial().config, world_size=8, ddp="fsdp")
    assert all(trials[0]["config"][name] == getattr(ranks, name) for name in COMBINATION_FIELDS)

    one, several = (" ".join(FitRequest("tiny", gpus=gpus).assumed()) for gpus in ([1], [1, 8]))
    assert "--set compile=block" in one and "without torch.compile" in several and "compile=block" not in several


FAST = Fit(
    device_name="H100 SXM", gpus=2, method="lora", recipe="bf16; adapters, their state fp32", checkpointing="none",
    batch=3, peak_bytes=2**30, budget_bytes=2**33, tokens_per_second=9000.0,
    tokens_per_second_between=(8000.0, 10000.0), hours=31.25,
)  # fmt: skip
LARGE = Fit(
    device_name="T4", gpus=1, method="full", recipe="bf16", checkpointing="block", batch=0, peak_bytes=2**34,
    budget_bytes=2**33, remedy="H100 SXM",
)  # fmt: skip
ANSWER = json_values(
    FitsOutput(model="<tiny>", context=64, tokens=1e9, assumed=["weights are in bfloat16"], fits=[FAST, LARGE])
)


def test_report_makes_a_page_of_the_answer_beside_that_of_the_results(here):
    (here / "report.html").write_text("results")
    (here / "fits.json").write_text(json.dumps(ANSWER))
    done = answer_here("report", "fits.json")
    assert (done.returncode, Path("report.html").read_text()) == (0, "results"), done.stderr
    assert re.fullmatch(r"fits.html \([\d.]+ KiB\); open it in a browser\n", done.stdout)
    page = (here / "fits.html").read_text()
    assert "By lora: 2 × H100 SXM, 3 sequences a GPU: 9,000 tokens a second (8,000 to 10,000), 31.2 hours." in page
    assert "By full, no GPU asked about holds it; nearest is T4." in page
    assert "no, 8 GiB too much" in page and "&lt;tiny&gt;" in page and page.count("<rect") == 1


def test_the_page_of_an_answer_takes_no_choice_of_a_page_of_stores(here):
    (here / "fits.json").write_text(json.dumps(ANSWER))
    for words in (["--charts", "c"], ["--with", "published"], ["--across", "gpus"], ["--history"], ["other.json"]):
        assert "leave out" in refused_here("report", "fits.json", *words) and not Path("fits.html").exists()


def page_of(folder: Path, **changes: Any) -> Path:
    """The page of the answer, with other values in it."""
    (folder / "fits.json").write_text(json.dumps({**ANSWER, **changes}))
    lmsweep_here("report", folder / "fits.json", "-o", folder / "fits.html")
    return folder / "fits.html"


def test_with_prices_the_page_names_the_cheapest_and_the_fastest_of_each_method(tmp_path):
    first = ANSWER["fits"][0] | {"dollars": 100.0, "dollars_between": (90.0, 113.0)}
    fast = first | {"device_name": "H200 SXM", "tokens_per_second": 18000.0, "hours": 15.6, "dollars": 156.0}
    fast |= {"tokens_per_second_between": (16000.0, 20000.0), "dollars_between": (140.0, 175.0)}
    near = fast | {"device_name": "B200 SXM", "tokens_per_second": 17000.0, "dollars_between": (110.0, 190.0)}
    near |= {"tokens_per_second_between": (12000.0, 22000.0), "gpus": 1}
    full = first | {"method": "full", "dollars": 50.0, "dollars_between": (45.0, 55.0)}
    page = html.unescape(page_of(tmp_path, fits=[full, first, fast, near]).read_text())
    assert (
        "By lora, cheapest as predicted: 2 × H100 SXM, 3 sequences a GPU: 9,000 tokens a second (8,000 to 10,000), "
        "31.2 hours, $100 (90 to 113); the interval of 1 other reaches it: B200 SXM. Fastest as predicted: 2 × H200 SXM"
    ) in page
    assert "$156 (140 to 175); the interval of 1 other reaches it: B200 SXM." in page
    assert "By full: 2 × H100 SXM, 3 sequences a GPU: 9,000" in page and "$50 (45 to 55).<" in page
    other = first | {"device_name": "T4", "gpus": 1, "dollars": 200.0, "dollars_between": (180.0, 220.0)}
    other |= {"tokens_per_second": 8500.0, "tokens_per_second_between": (7000.0, 9000.0)}
    third = other | {"device_name": "A40"}
    page = html.unescape(page_of(tmp_path, fits=[first, other, third]).read_text())
    assert (
        "no other's interval reaches it. It is the fastest as predicted, too; the intervals of 2 others reach" in page
    )
    unpriced = [one | {"dollars": None, "dollars_between": None} for one in (other, third)]
    assert "no other has a price. It is the fastest" in page_of(tmp_path, fits=[first, *unpriced]).read_text()
    page = page_of(tmp_path, fits=[first])
    assert "of training on 1,000,000,000 tokens; $1.60 an hour of one H100 SXM" in page.read_text()
    assert beyond_a_screen(page, 1168) == []


def test_with_a_trainer_the_page_names_the_best_as_that_trainer_trains(tmp_path):
    first = ANSWER["fits"][0] | {"tokens_per_second_of_others": 5e3, "tokens_per_second_of_others_between": (4e3, 6e3)}
    fast = first | {"device_name": "H200 SXM", "tokens_per_second": 8e3, "tokens_per_second_of_others": 7e3}
    page = page_of(tmp_path, fits=[fast, first], trainer="torchtitan").read_text()
    assert "By lora, fastest as predicted: 2 × H200 SXM, 3 sequences a GPU: 7,000 tokens a second" in page
    assert "(4,000 to 6,000) as torchtitan trains, 31.2 hours; the interval of 1 other reaches it" in page


@pytest.mark.slow
def test_the_page_fits_a_phone_and_its_speeds_fit_a_laptop(tmp_path):
    page = page_of(tmp_path)
    assert beyond_a_screen(page, 390) == []
    assert {"weights" in one or "checkpointing" in one for one in beyond_a_screen(page, 1168)} <= {True}


def test_each_gpu_has_a_line_that_says_where_its_rates_come_from(tmp_path):
    lines = [ANSWER["fits"][0] | {"device_name": f"GPU {n}", "source": f"products of GPU {n}"} for n in range(9)]
    page = page_of(tmp_path, fits=lines).read_text()
    assert re.findall(r"GPU (\d): products of GPU \1", page) == [str(n) for n in range(9)]


def test_a_method_without_an_answer_is_a_note_of_the_page(tmp_path):
    reason = f"adapter lora needs the package peft; {install_extra('adapters')}"
    nothing = {"fits": None, "batch": None, "peak_bytes": None, "reason": reason, "missing_bytes": 0}
    nothing |= {"tokens_per_second": None, "tokens_per_second_between": None, "hours": None}
    lines = [one | nothing if one["method"] == "lora" else one for one in ANSWER["fits"]]
    page = page_of(tmp_path, fits=lines).read_text()
    assert page.count("needs the package peft") == 1 and "By full, no GPU asked about holds it; nearest is T4." in page


def test_a_page_names_what_is_not_predicted_beside_what_does_not_fit(tmp_path):
    large = ANSWER["fits"][1]
    unknown = {"gpus": 8, "fits": None, "batch": None, "peak_bytes": None, "reason": "compiled code is not predicted"}
    page = page_of(tmp_path, fits=[large, large | unknown]).read_text()
    assert "By full, no GPU asked about holds it; nearest is T4. Not predicted, with a reason below: 8 × T4." in page


def test_a_file_without_an_answer_is_one_sentence(tmp_path):
    first, *others = ANSWER["fits"]
    wrong = [json.dumps({**ANSWER, "fits": [first | change, *others]})
             for change in ({"peak_bytes": 10**400}, {"tokens_per_second": "fast"})]  # fmt: skip
    for text in (None, "[" * 100_000, '{"fits": [1]}', *wrong):
        if text:
            (tmp_path / "fits.json").write_text(text)
        said = refused_here("report", tmp_path / "fits.json", "-o", tmp_path / "fits.html")
        assert ("--format json > FILE" if text else "cannot be read") in said
        assert not (tmp_path / "fits.html").exists()


@pytest.fixture(scope="module")
def tiny():
    listed = lmsweep.fits("tiny", context=64, devices=["24GB", "1 MB", "4090", "H200"], methods=["full"])
    return {one.device_name: one for one in listed}


@pytest.mark.slow
def test_checkpointing_is_chosen_where_it_decides(tiny):
    (fit,) = lmsweep.fits("2.7b", context=4096, devices=["4090"], methods=["full"], settings=["optimizer=sgd"])
    assert fit.checkpointing == "block" and fit.fits
    assert tiny["RTX 4090"].checkpointing == "none"


def test_a_size_of_memory_alone_is_answered_without_a_speed(tiny):
    named, sized, small = (tiny[name] for name in ("RTX 4090", "24GB", "1 MB"))
    assert sized.fits and sized.batch and sized.batch <= named.batch and sized.tokens_per_second is None
    assert sized.reason == "24GB is a size, which has no speed"
    assert small.fits is False


@pytest.mark.slow
def test_a_model_whose_weights_alone_are_too_large_is_not_advised_a_shorter_context():
    """One whose activations are too large is."""
    (one,) = lmsweep.fits("small", context=64, devices=["1GB"], methods=["full"], settings=["checkpointing=none"])
    assert one.lasting_bytes > one.budget_bytes and one.peak_bytes >= one.lasting_bytes
    assert "weights, gradients and state alone take" in one.remedy and "context" not in one.remedy
    fits = lmsweep.fits("tiny", context=4096, devices=["1GB", "24GB"], methods=["full"], settings=["attention=naive"])
    (other,) = (one for one in fits if one.device_name == "1GB")
    assert not other.fits and other.lasting_bytes < other.budget_bytes
    assert other.remedy == "24GB, or a shorter --context"


@pytest.mark.slow
def test_rates_that_a_store_measured_are_those_of_fits_as_of_a_plan(tiny, tmp_path):
    machine = Fingerprint(device_name="NVIDIA H200", device_memory=150_000_000_000, torch_version="2.11.0+cu130",
                          python_version="3.12")  # fmt: skip
    rows = [Measurement(phase=name, metric="time", unit="s", samples=(10 * seconds,))
            for name, seconds in LAUNCHES.items()]  # fmt: skip
    trial = single_trial(["workloads=operators", "device=cuda", "d_model=64"])
    Store(str(tmp_path)).keep(Attempt.begin(trial).rows("operators", rows, machine))

    shipped = tiny["H200 SXM"]
    (measured,) = lmsweep.fits(
        "tiny", context=64, devices=["H200"], methods=["full"], store=str(tmp_path), settings=["checkpointing=none"]
    )
    assert shipped.checkpointing == "none"
    assert measured.batch == shipped.batch
    assert measured.tokens_per_second < shipped.tokens_per_second


def test_each_line_states_the_types_of_weights_and_state():
    for method, precision, recipe in (
        ("full", "", "bf16"),
        ("full", "bf16", "fp32, products bf16"),
        ("full", "fp32", "fp32"),
        ("lora", "", "bf16; adapters, their state fp32"),
        ("lora", "bf16_pure", "bf16; adapters, their state bf16"),
        ("qlora", "", "4 bits; adapters, their state fp32"),
    ):
        settings = (f"precision={precision}",) if precision else ()
        request = FitRequest("tiny", methods=[method], settings=settings)
        assert recipe_of(request.by(method, request.trial().config)) == recipe


def test_a_size_that_transformers_has_too_says_why_they_differ():
    (said,) = [one for one in FitRequest("qwen3-8b").assumed() if "transformers" in one]
    assert "hf:Qwen/Qwen3-8B" in said
    assert not [one for one in FitRequest("tiny").assumed() if "transformers" in one]


def test_a_name_with_two_sizes_of_memory_means_both(capsys):
    meant = [one.name for one in FitRequest("tiny", devices=["A100", "4090"]).gpus_meant()]
    assert meant == ["A100 SXM 40GB", "A100 SXM 80GB", "RTX 4090"]
    said = capsys.readouterr().err
    assert "predicting for A100 SXM 40GB and A100 SXM 80GB; other matches: A100 PCIe 40GB, A100 PCIe 80GB" in said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("hf:nobody/Nothing-1B",), "hf download nobody/Nothing-1B config.json"),
        (("hf:./missing.json",), "there is no file"),
        (("tiny", "--method", "lara"), "did you mean lora?"),
        (("tiny", "--tokens", "many"), "such as 300M or 1B"),
        (("tiny", "--for", "8xH100"), "--for 8xH100: the number of GPUs is an option of its own: --for H100 --gpus 8"),
        (("tiny", "--gpus", ","), "--gpus names no number; write --gpus 1,8"),
        (("tiny", "--method", ","), "--method names none; write --method full,lora"),
        (("tiny", "--gpus", "9"), "--gpus 9: they do not fill nodes of 8; write 8 or 16"),
        (("tiny", "--gpus", "16", "--for", "4090"), "are connected is not known; ask for at most 8, or of another GPU"),
        (("tiny", "--gpus", "8", "--lengths", "lognormal(40, 0.8, 64)"), "are not predicted; leave out one"),
        (("tiny", "--gpus", "2", "--set", "compile=block", "--for", "H100"), "lmsweep plan fsdp --set model=tiny"),
        (("tiny", "--gpus", "2", "--set", "compile=block"), "adapter qlora is not measured with compile"),
        (("tiny", "--set", "batch_size=4"), "fits chooses it"),
        (("tiny", "--method", "qlora", "--set", "device=cpu"), "fits chooses it"),
        (("tiny", "--method", "lora", "--set", "adapter_args.rank=4096"), "above the width of the model, 128"),
        (("tiny", "--price", "B200=9", "--for", "H100"), "no such device"),
    ],
)
def test_a_wrong_request_is_one_sentence_and_ends_with_2(arguments, words):
    assert words in refused_here("fits", *arguments, *SHORT, HF_HOME="/nonexistent")


@pytest.mark.slow
def test_a_shipped_configuration_states_every_dimension():
    for name in shipped_names():
        config = FitRequest(f"hf:{name}", methods=["full"]).trial().config
        assert all((config.d_model, config.d_ff, config.num_layers, config.num_heads, config.vocab_size)), name


@pytest.mark.skipif(find_spec("transformers") is not None, reason="transformers is installed")
def test_a_package_that_the_model_needs_is_one_sentence():
    *_, said = refused_here("fits", "hf:Qwen/Qwen3-8B", "--for", "H100,H200").splitlines()
    assert said == f"lmsweep: hf: needs the package transformers; {install_extra('hf')}"


@pytest.mark.slow
@pytest.mark.skipif(find_spec("peft") is not None, reason="peft is installed")
def test_methods_are_predicted_without_the_packages_that_run_them():
    fits = json.loads(lmsweep_here("fits", "tiny", *SHORT, "--for", "H100", "--format", "json"))["fits"]
    assert {one["method"]: one["fits"] for one in fits} == dict.fromkeys(("full", "lora", "qlora"), True)
