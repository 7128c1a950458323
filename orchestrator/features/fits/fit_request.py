"""What `fits` is asked: a model, GPUs, methods, tokens and prices."""

import re
import shlex
import warnings
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import NamedTuple

import lmsweep
from lmsweep.orchestrator.cluster.planned_nodes import USUAL_GPUS, Layout, layout_of
from lmsweep.orchestrator.commands.options import check_trainer
from lmsweep.orchestrator.feature import registered
from lmsweep.orchestrator.planning.memory_budget import CUDA_RESERVE, counted, devices_meant
from lmsweep.orchestrator.sweep.sweep import load_sweep, parse_override, single_trial
from lmsweep.orchestrator.sweep.users_code import configuration_file
from lmsweep.orchestrator.terminal import say
from lmsweep.trials.analytic.datasheets import Device
from lmsweep.trials.analytic.prices import parse_prices
from lmsweep.trials.code.calling import arguments_of
from lmsweep.trials.code.hub_configurations import FOLDER, read_configuration
from lmsweep.trials.results.roles import MODEL
from lmsweep.trials.spec.config import COMBINATION_FIELDS, RequestError, Trial, TrialConfig
from lmsweep.trials.spec.model_sizes import SIZES
from lmsweep.trials.spec.quantities import bytes_of, context_of
from lmsweep.trials.spec.reference import HUGGING_FACE
from lmsweep.trials.spec.suggestions import choices
from lmsweep.trials.spec.ways.adapters import ADAPTERS
from lmsweep.trials.spec.ways.checkpointings import TRIED_CHECKPOINTINGS
from lmsweep.trials.spec.ways.precisions import PRECISIONS
from lmsweep.trials.spec.words import Precision

FULL = "full"
"""The method that trains all weights."""
METHODS = (FULL, *ADAPTERS)
USUAL_METHODS = (FULL, "lora", "qlora")
USUAL_CONTEXT = 4096
POSITIONS = ("max_position_embeddings", "n_positions")
"""Names of the number of positions in a Hugging Face configuration."""
_SCALES = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
_RANKS = {"ddp", "world_size", "nodes", "tp"}
"""Fields that follow from --gpus."""
_RANKS_SWEEP = "fsdp"
"""The packaged sweep of several ranks from which the command of `plan` starts."""
_SETTINGS = ("attention=sdpa", "loss=cross_entropy", "mode=train_step")
"""Settings that apply unless `set` overrides them: those of fine-tuning tools, on one GPU without torch.compile."""
FULL_PRECISION: Precision = "bf16_pure"
ADAPTERS_PRECISION: Precision = "bf16"
"""Precision with adapters: float32 adapters, frozen weights in bfloat16, and autocast, as PEFT and Trainer use them."""

SHORT_TYPES = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}


class AskedGpu(NamedTuple):
    """A GPU of a datasheet, or a size of memory alone."""

    name: str
    memory: int
    """Bytes that CUDA reports."""
    datasheet: Device | None


@dataclass(frozen=True)
class FitRequest:
    """The arguments of `lmsweep.fits`, as texts of the command."""

    model: str
    _: KW_ONLY
    context: int | str | None = None
    """Tokens of a sequence; `8k` is 8,192. None: USUAL_CONTEXT, or as many as the model has positions."""
    devices: Sequence[str] = ("H100", "H200", "B200", "A100 80GB", "4090")
    gpus: Sequence[int] = (1,)
    methods: Sequence[str] = USUAL_METHODS
    lengths: str | None = None
    """Token counts of documents, as in the field `lengths`; None: `context` in each."""
    tokens: str | None = None
    prices: Sequence[str] = ()
    trainer: str | None = None
    """One of NAMED_TRAINERS, whose hours and dollars it asks for; None: the second interval is of all public ones."""
    settings: Sequence[str] = ()
    """Other fields of the trial, as `FIELD=VALUE`."""
    store: str = "results"
    """Rates that it has measured of a GPU replace those that ship, as in a plan."""
    code: str | None = None
    trusted: Sequence[str] = ()

    def checked(self) -> "FitRequest":
        """Return the request. Raises RequestError if a number, a method or a price is wrong."""
        if not self.gpus:
            raise RequestError("--gpus names no number; write --gpus 1,8")
        if not self.methods:
            raise RequestError("--method names none; write --method full,lora")
        for count in self.gpus:
            if count < 1:
                raise RequestError(f"--gpus {count}: it must be at least 1")
        if not self.devices:
            raise RequestError("--for names no GPU; write --for H100,H200")
        if self.trainer:
            check_trainer(self.trainer)
        if self.lengths and max(self.gpus) > 1:
            raise RequestError(
                f"--gpus {max(self.gpus)} with --lengths: ranks whose batches differ are not predicted; leave out one"
            )
        self.methods_meant(), self.tokens_meant(), parse_prices(self.prices)  # raise for a wrong one
        return replace(self, gpus=tuple(dict.fromkeys(self.gpus)), context=self.context_meant())

    def trial(self) -> Trial:
        """Return the trial of the first method with adapters, or else of FULL, on one GPU. `by` derives those of other
        methods. Raises RequestError if the model or a setting is not known."""
        chosen = self.chosen()
        usual = [text for text in _SETTINGS if text.partition("=")[0] not in chosen]
        # A trial checks adapter_args only if it has an adapter.
        first = next((name for name in self.methods_meant() if name != FULL), FULL)
        adapter = [f"adapter={first}"] if first != FULL else []
        asked = [*adapter, *self._model(), f"context_length={self.context_meant()}", "device=cuda", "batch_size=1"]
        asked += [f"lengths={self.lengths}"] if self.lengths else []
        chosen_here = {text.partition("=")[0] for text in asked} | {"adapter"} | _RANKS
        if twice := chosen_here & chosen:
            raise RequestError(f"--set {min(twice)}: fits chooses it; MODEL, --context, --method and --gpus say how")
        trial = self._trial_of([*asked, *usual, *self.settings])  # the last of a field counts
        if trial.config.is_hugging_face and trial.config.num_layers is None:
            name = str(trial.config.model_code).removeprefix(HUGGING_FACE)
            raise RequestError(
                f"{self.model}: its config.json is neither shipped nor in the hub's cache; fetch it: "
                f"hf download {shlex.quote(name)} config.json (shipped: {', '.join(shipped_names())})"
            )
        return replace(trial, config=self.by(first, trial.config))

    def _trial_of(self, settings: Sequence[str]) -> Trial:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a missing config.json; `trial` raises an error instead
            return single_trial(settings, code=self.code, trusted=self.trusted)

    def positions(self) -> int | None:
        """Return the positions that a model of Hugging Face states; None if it states none, or is another model."""
        if not self.model.startswith(HUGGING_FACE):
            return None
        changes = [text for text in self.settings if text.startswith("model_args.")]
        trial = self._trial_of([f"model={self.model}", *changes])
        assert trial.code is not None, "a reference has its folder"
        path = configuration_file(self.model.removeprefix(HUGGING_FACE), trial.code)
        stated = read_configuration(path, arguments_of(trial.config.model_args)) if path else {}
        return next((one for name in POSITIONS if isinstance(one := stated.get(name), int) and one > 0), None)

    def _model(self) -> list[str]:
        """Return the settings of the model: those of any name that `audit` knows. Raises RequestError for another."""
        is_reference = re.search("[:{]", self.model)  # hf:NAME, mine:Model, or a configuration as JSON
        if self.model in SIZES or is_reference or "model_settings" not in registered("functions"):
            return [f"model={self.model}"]
        settings = lmsweep.model_settings(self.model)
        return [
            f"{name}={str(value).lower() if isinstance(value, bool) else value}" for name, value in settings.items()
        ]

    def _given(self, field: str) -> str:
        """Return the setting of a field in _SETTINGS, as `field=value`; `settings` override the usual value."""
        return [text for text in (*_SETTINGS, *self.settings) if text.startswith(f"{field}=")][-1]

    def chosen(self) -> set[str]:
        """Return the fields that `settings` names."""
        return {parse_override(text)[0] for text in self.settings}

    def by(self, method: str, config: TrialConfig) -> TrialConfig:
        """Return the configuration with this method in place of its own."""
        usual = FULL_PRECISION if method == FULL else ADAPTERS_PRECISION
        config = replace(config, precision=config.precision if "precision" in self.chosen() else usual)
        if method == FULL:  # the arguments are those of adapters
            return replace(config, adapter="none", adapter_args=None)
        return replace(config, adapter=method)

    def plan(self, config: TrialConfig, gpu: AskedGpu) -> str:
        """Return the command that plans the ranks of a configuration, at one sequence each, for this GPU:
        `lmsweep plan fsdp --set model=8b --set precision=bf16 ... --set adapter=lora --for 8xH100`."""
        chosen, has_adapter = self.chosen(), config.adapter != "none"
        of_user = [one for one in self.settings if has_adapter or not one.startswith("adapter_args.")]
        of_method = [f"adapter={config.adapter}"] if has_adapter else []
        tried = [] if "checkpointing" in chosen else [f"checkpointing={','.join(TRIED_CHECKPOINTINGS)}"]
        in_other_parts = {*MODEL, "checkpointing", "adapter", "adapter_args", *chosen}  # of `settings`
        packaged = [one.config for one in load_sweep(_RANKS_SWEEP).trials]
        differing = [
            f"{name}={getattr(config, name)}"
            for name in (*COMBINATION_FIELDS, "mode")
            if name not in in_other_parts and any(getattr(one, name) != getattr(config, name) for one in packaged)
        ]
        settings = [*self._model(), *differing, *tried, *of_method, *of_user]
        words = ["lmsweep", "plan", _RANKS_SWEEP, *(word for one in settings for word in ("--set", one))]
        words += ["--for", f"{config.world_size}x{gpu.name}"]
        words += [word for price in self.prices for word in ("--price", price)]
        words += [word for package in self.trusted for word in ("--trust", package)]
        for option, value in (("--trainer", self.trainer), ("--code", self.code)):
            words += [option, value] if value else []
        words += ["--store", self.store] if self.store != "results" else []
        return shlex.join(words)

    def gpus_meant(self) -> list[AskedGpu]:
        """Return the GPUs that the names mean, each once; a name with several memory sizes means all. Raises
        RequestError for a name without a GPU."""
        found: dict[str, AskedGpu] = {}
        for text in self.devices:
            if (size := bytes_of(text)) is not None:
                found[text.strip()] = AskedGpu(text.strip(), size, None)
                continue
            count, name = counted(text)
            if count > 1:
                raise RequestError(
                    f"--for {text}: the number of GPUs is an option of its own: --for {name} --gpus {count}"
                )
            matching = devices_meant(text)
            product = _without_memory(matching[0])  # the first match decides
            taken = [one for one in matching if _without_memory(one) == product]
            found |= {one.name: AskedGpu(one.name, one.memory, one) for one in taken}
            if others := [one.name for one in matching if one not in taken]:
                names = " and ".join(one.name for one in taken)
                say(f"--for {text}: predicting for {names}; other matches: {', '.join(others)}", error=True)
        return list(found.values())

    def layout(self, gpu: AskedGpu, gpus: int) -> Layout:
        """Return the number of nodes for these GPUs. Raises RequestError if they do not fill nodes."""
        if gpus > USUAL_GPUS and gpus % USUAL_GPUS:
            near = gpus // USUAL_GPUS * USUAL_GPUS
            raise RequestError(
                f"--gpus {gpus}: they do not fill nodes of {USUAL_GPUS}; write {near} or {near + USUAL_GPUS}"
            )
        try:
            return layout_of(gpus, gpu.datasheet, nodes=None, network=None)
        except RequestError as error:
            raise RequestError(
                f"--gpus {gpus} of {gpu.name}: how fast nodes of them are connected is not known; ask for at most "
                f"{USUAL_GPUS}, or of another GPU by --for"
            ) from error

    def methods_meant(self) -> list[str]:
        """Return the methods. Raises RequestError for an unknown one."""
        for name in self.methods:
            if name not in METHODS:
                raise RequestError(f"--method {name}: no such method{choices(name, METHODS)}")
        return list(dict.fromkeys(self.methods))

    def context_meant(self) -> int:
        """Return the tokens of a sequence. Raises RequestError for other text."""
        if self.context is None:
            return min(USUAL_CONTEXT, self.positions() or USUAL_CONTEXT)
        if not (tokens := context_of(str(self.context))):
            raise RequestError(f"--context {self.context}: write the tokens of a sequence, such as 8192 or 8k")
        return tokens

    def tokens_meant(self) -> float | None:
        """Return the number of tokens to train on; None if none is given. Raises RequestError for other text."""
        if self.tokens is None:
            return None
        found = re.fullmatch(r"(\d+(?:\.\d+)?(?:e\d+)?)\s*([KMBT]?)", self.tokens.strip(), re.IGNORECASE)
        if not found or float(found[1]) == 0:
            raise RequestError(f"--tokens {self.tokens}: write a number of tokens, such as 300M or 1B")
        return float(found[1]) * _SCALES[found[2].upper()]

    def assumed(self) -> list[str]:
        """Return what the prediction assumes, in sentences."""
        chosen = next((text for text in self.settings if text.startswith("precision=")), None)
        types = chosen or (
            f"in bfloat16 (precision={FULL_PRECISION}), which tools that keep float32 copies of them do not do; "
            f"adapters in float32 beside weights in bfloat16, with autocast (precision={ADAPTERS_PRECISION})"
        )
        compiled = any(text.startswith("compile=") for text in self.settings)
        advice = " (`--set compile=block` predicts compiled steps)" if max(self.gpus) == 1 else ""  # ranks: see `plan`
        eager = "" if compiled else f" and without torch.compile{advice}"
        steps = " and ".join(self._given(name) for name in ("attention", "loss"))
        said = [
            f"predictions of steps with {steps}, without a GPU{eager}; batch: sequences of each GPU, the largest that "
            "fits; peak: of the allocator's blocks at that batch, or at one sequence",
            f"weights, gradients and AdamW's state: {types}; several GPUs share them by fsdp",
        ]
        most, context = self.positions(), self.context_meant()
        if most and context > most:
            said.append(f"{self.model} has {most:,} positions: if they are learned, no step of {context:,} tokens runs")
        elif most == context < USUAL_CONTEXT:
            said.append(f"context: the {most:,} positions of the model, fewer than the usual {USUAL_CONTEXT:,}")
        asked = self.model.rpartition("/")[2].lower()
        alike = (name for name in shipped_names() if name.rpartition("/")[2].lower().startswith(asked))
        if ":" not in self.model and (other := next(alike, None)):
            said.append(
                f"{self.model}: lmsweep's own transformer of these dimensions, with rotary positions in float32 and "
                f"SiLU from its parts, so in other memory and time than that of transformers, hf:{other}"
            )
        return said


def _without_memory(device: Device) -> str:
    return re.sub(r" \d+ ?GB$", "", device.name)


def shipped_names() -> list[str]:
    """Return the names on the hub whose configurations ship."""
    return sorted(path.stem.replace("--", "/") for path in FOLDER.glob("*.json"))


def budget_of(gpu: AskedGpu | Device) -> int:
    """Return the bytes of a GPU that a step may use."""
    return gpu.memory - CUDA_RESERVE


def recipe_of(config: TrialConfig) -> str:
    """Return the types of weights and of the optimizer's state, in words."""
    formats = PRECISIONS[config.precision]
    trained = SHORT_TYPES[formats.weights]
    if config.adapter != "none":
        bits = ADAPTERS[config.adapter].stored_bits
        frozen = f"{bits} bits" if bits else SHORT_TYPES[formats.autocast or formats.weights]
        return f"{frozen}; adapters, their state {trained}"
    return f"{trained}, products {SHORT_TYPES[formats.autocast]}" if formats.autocast else trained
