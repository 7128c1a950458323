"""How sure `lmsweep audit` is: honest claims as they are, and the same with one injected mistake, drawn by a seed.

    python -m benchmarks.audit_injection CLAIMS.csv ... [--seed 1] [--number 400] [--cache FILE] [--csv FILE]

CLAIMS.csv: as `python -m benchmarks.audit_rows` writes it. Prints how many honest claims are called impossible,
contradictory or slow, and of the injected ones how many are flagged and where the right cause is ranked. --cache keeps
predicted operators; --csv writes each injected claim with its verdict. An injected factor of a slower step comes from
the operators of its prediction with 8 % of noise, one of a wrong count is exact.
"""

import argparse
import csv
import math
import pickle
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path

from tabulate import tabulate

from lmsweep.orchestrator.cluster.nodes import Refusal
from lmsweep.orchestrator.features.audit.asking import asked_of, configs_of, operators_question, why_unpredicted
from lmsweep.orchestrator.features.audit.case import Case
from lmsweep.orchestrator.features.audit.causes import other_step
from lmsweep.orchestrator.features.audit.claims.counting import conventions, other_peaks, peak_of, precision_of
from lmsweep.orchestrator.features.audit.claims.read_claim import claim_of
from lmsweep.orchestrator.features.audit.claims.stated_claim import Claim
from lmsweep.orchestrator.features.audit.prediction import predicted
from lmsweep.orchestrator.features.audit.verdict import Audited, judged
from lmsweep.trials.analytic.prediction_question import Answer, Question
from lmsweep.trials.spec.errors import RequestError

LARGE = 1.8
"""The least factor that is to be flagged."""
NOISE = 0.08
Draw = tuple[str, float, Claim]
"""The cause, the factor, and the claim with it."""
RATES = ("tokens_per_second", "tokens_per_second_per_gpu", "samples_per_second")


def times(claim: Claim, factor: float, *, step: bool = True, counted: bool = True) -> Claim:
    """Return the claim with rates that are so many times as high."""
    changed = {name: getattr(claim, name) * factor for name in RATES if getattr(claim, name)}
    if counted:
        changed |= {name: getattr(claim, name) * factor for name in ("mfu", "tflops", "hfu") if getattr(claim, name)}
    if step and claim.step_seconds:
        changed["step_seconds"] = claim.step_seconds / factor
    return replace(claim, **changed)


def with_rate(claim: Claim) -> Claim:
    """Return the claim with a rate, where it has a time alone."""
    if any(getattr(claim, name) for name in RATES) or not claim.step_tokens or not claim.step_seconds:
        return claim
    return replace(claim, tokens_per_second=claim.step_tokens / claim.step_seconds)


def with_mfu(case: Case) -> tuple[Claim, float]:
    """Return the claim and its true MFU, attention over all positions."""
    claim = with_rate(case.claim)
    rate = case.rates[case.main]
    flops = next(one.flops for one in conventions(claim) if one.name == "full")
    return claim, rate / claim.count * flops / peak_of(claim.device, precision_of(claim))


def _mfu(case: Case, factor: float, draw: random.Random, convention: str | None = None) -> Claim:
    claim, share = with_mfu(case)
    changed = replace(claim, mfu=share * factor, hfu=None, tflops=None, convention=convention)
    if draw.random() < 0.3:  # the MFU alone
        changed = replace(changed, **dict.fromkeys((*RATES, "step_seconds"), None))
    return changed


def sparse(case: Case, draw: random.Random) -> Draw:
    return "sparse peak", 0.5, _mfu(case, 0.5, draw)


def other_peak(case: Case, draw: random.Random) -> Draw | None:
    peaks = {
        name: rate for name, rate in other_peaks(case.claim).items() if "sparsity" not in name and "fp32" not in name
    }
    factor = case.peak / draw.choice(sorted(peaks.values()))
    if abs(math.log(factor / 0.5)) < 0.1:
        return None  # as of the sparse peak
    return "another GPU's peak", factor, _mfu(case, factor, draw)


def causal(case: Case, draw: random.Random) -> Draw:
    factor = case.of_conventions["full"] / case.of_conventions.get("causal", case.of_conventions["full"])
    claim, share = with_mfu(case)
    return "causal attention counted in full", factor, replace(claim, mfu=share, tflops=None, convention="causal")


def recomputed(case: Case, draw: random.Random) -> Draw:
    return "recomputation counted", 4 / 3, _mfu(case, 4 / 3, draw)


def gpus(case: Case, draw: random.Random) -> Draw | None:
    claim = with_rate(case.claim)
    if claim.count == 1:
        return None
    count = draw.choice([claim.count, claim.node_gpus])
    factor = float(count) if draw.random() < 0.5 else 1 / count
    return "per node or per GPU", factor, times(claim, factor, step=False, counted=draw.random() < 0.3)


def accumulation(case: Case, draw: random.Random) -> Draw | None:
    claim = with_rate(case.claim)
    if claim.micro_batches == 1:
        return None
    factor = 1 / claim.micro_batches if draw.random() < 0.7 else float(claim.micro_batches)
    return "accumulation counted once or N times", factor, times(claim, factor, step=False, counted=draw.random() < 0.3)


def ranks(case: Case, draw: random.Random) -> Draw | None:
    claim = with_rate(case.claim)
    shared = [count for count in (claim.tp, claim.cp, claim.pp) if count and count > 1]
    if not shared:
        return None
    factor = float(draw.choice(shared))
    return "tokens counted by each rank", factor, times(claim, factor, step=False, counted=False)


def padding(case: Case, draw: random.Random) -> Draw:
    claim, factor = with_rate(case.claim), draw.uniform(1.3, 4)
    states = draw.random() < 0.5
    changed = times(claim, factor, step=False, counted=draw.random() < 0.3)
    return (
        "padding counted",
        factor,
        replace(changed, length=claim.context / factor if states and claim.context else None),
    )


def warm_up(case: Case, draw: random.Random) -> Draw:
    factor = 1 / draw.uniform(1.2, 4)
    return "warm-up or compilation in the mean", factor, times(with_rate(case.claim), factor, step=draw.random() < 0.5)


def asynchronous(case: Case, draw: random.Random) -> Draw | None:
    if case.launch_factor < LARGE:  # the clock cannot show less than the launches take
        return None
    factor = draw.uniform(min(2.0, case.launch_factor), case.launch_factor)
    return "asynchronous timing", factor, times(case.claim, factor)


def fewer(name: str) -> Callable[[Case, random.Random], Draw | None]:
    def inject(case: Case, draw: random.Random) -> Draw | None:
        if case.claim.method not in (None, "full"):
            return None
        factor = case.frozen_factor * math.exp(draw.gauss(0, NOISE))
        return name, factor, times(case.claim, factor, counted=draw.random() < 0.7)

    return inject


def slower(factors: Callable[[Case], other_step.Factors], name: str) -> Callable[[Case, random.Random], Draw | None]:
    def inject(case: Case, draw: random.Random) -> Draw | None:
        ways = [*factors(case)]
        if not ways:
            return None
        (one,) = draw.choices(ways, [one.weight for one in ways])
        factor = math.exp(-draw.uniform(math.log(one.least), math.log(one.most)) + draw.gauss(0, NOISE))
        return name, factor, times(case.claim, factor)

    return inject


INJECTIONS: tuple[Callable[[Case, random.Random], Draw | None], ...] = (
    sparse, other_peak, causal, recomputed, gpus, accumulation, ranks, padding, warm_up, asynchronous,
    fewer("frozen weights"), fewer("LoRA counted as full"),
    slower(other_step.precision, "TF32 or autocast off"),
    slower(other_step.attention, "math or memory-efficient attention in place of flash"),
    slower(other_step.flash_2, "FlashAttention 2 on Hopper"), slower(other_step.offload, "offload"),
    slower(other_step.form, "PCIe in place of SXM"), slower(other_step.power, "power limit"),
)  # fmt: skip
"""One for each factor of the list, drawn alike."""
SAME = {"frozen weights": {"LoRA counted as full"}, "LoRA counted as full": {"frozen weights"}}
"""Causes whose numbers are the same: both are right."""


def read(paths: Sequence[Path]) -> list[Claim]:
    claims = []
    for path in paths:
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                try:
                    claim = claim_of({name: cell for name, cell in row.items() if cell})
                    if not claim.missing() and not why_unpredicted(claim):
                        claims.append(claim)
                except RequestError as error:
                    print(f"apart: {error}")
    return claims


def answers(claims: Sequence[Claim], cache: Path | None) -> dict[Question, Answer]:
    known: dict[Question, Answer] = pickle.loads(cache.read_bytes()) if cache and cache.exists() else {}
    missing = [claim for claim in claims if any(operators_question(one) not in known for one in configs_of(claim))]
    for start in range(0, len(missing), 8):
        known |= asked_of(missing[start : start + 8])
        if cache:
            cache.write_bytes(pickle.dumps(known))
    return known


def cases_of(claims: Sequence[Claim], known: dict[Question, Answer]) -> Iterator[Case]:
    for claim in claims:
        said = predicted(claim, known)
        if isinstance(said, Refusal):
            print(f"apart: {claim.name} {claim.model}: {said.reason}")
        else:
            yield Case(claim=claim, predicted=said)


def injected(cases: Sequence[Case], number: int, seed: int) -> Iterator[tuple[Case, Draw]]:
    """Yield so many claims with one mistake each."""
    draw = random.Random(seed)
    while number:
        case, inject = draw.choice(cases), draw.choice(INJECTIONS)
        if (drawn := inject(case, draw)) is not None and abs(math.log(drawn[1])) > math.log(1.05):
            number -= 1
            yield case, drawn


def host_decides(case: Case) -> bool:
    """Whether a slow host may decide how long the step takes."""
    assert case.predicted is not None, "claims without a prediction are left out"
    slow = min(one.tokens / one.slow_host_seconds for one in case.predicted.runs)
    return slow < case.predicted.middle


def ranked(answer: Audited, cause: str) -> int | None:
    right = {cause} | SAME.get(cause, set())
    return next((place for place, one in enumerate(answer.explanations, start=1) if one.cause in right), None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("claims", nargs="+", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--number", type=int, default=400)
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--csv", type=Path)
    asked = parser.parse_args()
    claims = read(asked.claims)
    cases = [*cases_of(claims, answers(claims, asked.cache))]
    honest(cases)
    lines, of_gpus = [], []
    for case, (cause, factor, claim) in injected(cases, asked.number, asked.seed):
        answer = judged(Case(claim=claim, predicted=case.predicted))
        flagged = answer.verdict in ("impossible", "contradicts itself", "slow")
        first = answer.explanations[0].cause if answer.explanations else ""
        lines.append((cause, factor, claim, answer.verdict, flagged, ranked(answer, cause), first))
        if not host_decides(case):
            of_gpus.append(lines[-1])
    table(lines)
    print("where no host decides:")
    table(of_gpus)
    if asked.csv:
        with asked.csv.open("w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            names = [one.name for one in fields(Claim)]
            writer.writerow(["cause", "factor", "verdict", "rank", "first", *names])
            for cause, factor, claim, verdict, _, rank, first in lines:
                values = [getattr(claim, name) for name in names]
                writer.writerow(
                    [
                        cause,
                        f"{factor:.4g}",
                        verdict,
                        rank or "",
                        first,
                        *("" if one is None else one for one in values),
                    ]
                )


def honest(cases: Sequence[Case]) -> None:
    counts: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for case in cases:
        for name in (case.claim.name or "", "all"):
            counts[name][judged(case).verdict] += 1
    verdicts = ("possible", "slow", "impossible", "contradicts itself", "cannot tell")
    rows = [[name, sum(found.values()), *(found[one] for one in verdicts)] for name, found in sorted(counts.items())]
    print(tabulate(rows, headers=["honest claims of", "claims", *verdicts], tablefmt="github"))
    print()


def table(lines: Sequence[tuple[str, float, Claim, str, bool, int | None, str]]) -> None:
    groups: dict[str, list[tuple[bool, int | None]]] = defaultdict(list)
    for cause, factor, _, _, flagged, rank, _ in lines:
        is_large = abs(math.log(factor)) >= math.log(LARGE)
        for name in (cause, "all") if is_large else ():
            groups[name].append((flagged, rank))
        groups["all, any factor"].append((flagged, rank))
    rows = []
    for name, group in sorted(groups.items()):
        ranks = [rank for flagged, rank in group if flagged]
        first, three = sum(rank == 1 for rank in ranks), sum(rank is not None and rank <= 3 for rank in ranks)
        rows.append([name, len(group), f"{sum(one for one, _ in group) / len(group):.0%}",
                     f"{first / max(1, len(ranks)):.0%}", f"{three / max(1, len(ranks)):.0%}"])  # fmt: skip
    headers = [f"injected, factor of {LARGE} and more", "claims", "flagged", "first", "among three"]
    print(tabulate(rows, headers=headers, tablefmt="github"))


if __name__ == "__main__":
    main()
