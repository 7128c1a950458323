"""The batches that a trainer makes of documents.

padded         batch_size documents in the order drawn, each a row, as long as the longest of them: the default of
               TRL, axolotl, torchtune and Hugging Face's Trainer
grouped        the same among documents of about equal length: Hugging Face's `group_by_length`, which sorts each 50
               batches (`LengthGroupedSampler`, `transformers/trainer_pt_utils.py`)
packed         batch_size rows of context_length tokens, each full of documents that do not attend to one another:
               `packing` of TRL, `sample_packing` of axolotl; see `best_fit_decreasing`
token_budget   as many documents as padded tokens fit into batch_tokens: fairseq's `--max-tokens`. verl's
               `use_dynamic_bsz` limits tokens, too, by `ppo_max_token_len_per_gpu`, and removes the padding

TRL packs by best fit, decreasing (`packing_strategy="bfd"`, `trl/data_utils.py`, `pack_dataset`): of each 1000
examples, the batch of `Dataset.map`, the longest first, each into the fullest row that has room. axolotl's
`sample_packing` is first fit, decreasing (`MultipackBatchSampler`), which leaves about the same padding. torchtitan
streams: it joins documents and cuts at every `seq_len`, so that nothing is padded and documents are cut.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice, repeat

import numpy as np

from lmsweep.trials.lengths.drawing import document_lengths, stream
from lmsweep.trials.spec.config import TrialConfig

GROUPED_BATCHES = 50
"""Batches among which documents are sorted by length: `mega_batch_mult` of LengthGroupedSampler."""

PACKED_AT_ONCE = 1000
"""Documents among which rows are filled."""

Rows = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, kw_only=True)
class Batch:
    rows: Rows
    """Of each row, the tokens of the documents in it."""
    width: int | None = None
    """Tokens of each row with its padding; None: of the longest."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows, and tokens of each with padding."""
        return len(self.rows), self.width or max(map(sum, self.rows))

    @property
    def real_tokens(self) -> int:
        return sum(map(sum, self.rows))

    @property
    def padded_tokens(self) -> int:
        rows, width = self.shape
        return rows * width

    @property
    def document_lengths(self) -> tuple[int, ...]:
        """The documents of all rows, in order; the padding of a row is a document at its end."""
        width = self.shape[1]
        padded = chain.from_iterable((*row, width - sum(row)) for row in self.rows)
        return tuple(length for length in padded if length)


def batches(config: TrialConfig, rank: int = 0, world_size: int = 1) -> Iterator[Batch]:
    """Yield the batches of one rank without end, the same in every trial with these lengths, this seed and this way of
    batching. Ranks take turns, as in Accelerate's `BatchSamplerShard`. With `accumulate` a batch is a micro-batch."""
    return islice(_batches(config), rank, None, world_size)


def _batches(config: TrialConfig) -> Iterator[Batch]:
    size, width = config.micro_batch_size, config.context_length
    if config.lengths is None or config.document_length is not None:
        row = document_lengths(width, config.document_length or width)
        return repeat(Batch(rows=(row,) * size, width=width))
    documents: Iterator[int] = chain.from_iterable(part.tolist() for part in stream(str(config.lengths), config.seed))
    if config.batching == "token_budget":
        return _within_budget(documents, config.batch_tokens or 0)
    if config.batching == "packed":
        return _batched(_packed_rows(documents, width, config.seed), size, width)
    if config.batching == "grouped":
        documents = _sorted_groups(documents, GROUPED_BATCHES * size)
    return _batched(((length,) for length in documents), size)


def _batched(rows: Iterator[tuple[int, ...]], size: int, width: int | None = None) -> Iterator[Batch]:
    while True:
        yield Batch(rows=tuple(islice(rows, size)), width=width)


def _sorted_groups(documents: Iterator[int], size: int) -> Iterator[int]:
    while True:
        yield from sorted(islice(documents, size), reverse=True)


def _packed_rows(documents: Iterator[int], width: int, seed: int) -> Iterator[tuple[int, ...]]:
    """Yield rows in a random order: the sampler shuffles what `pack_dataset` has packed."""
    order = np.random.default_rng(seed)
    while True:
        rows = best_fit_decreasing(islice(documents, PACKED_AT_ONCE), width)
        yield from (rows[index] for index in order.permutation(len(rows)))


def _within_budget(documents: Iterable[int], tokens: int) -> Iterator[Batch]:
    """Yield batches of documents in the order drawn, the next one beginning with what does not fit any more."""
    rows: list[int] = []
    for length in documents:
        if rows and (len(rows) + 1) * max(length, *rows) > tokens:
            yield Batch(rows=tuple((one,) for one in rows))
            rows = []
        rows.append(length)


def best_fit_decreasing(lengths: Iterable[int], width: int) -> list[tuple[int, ...]]:
    """Return rows of documents, each of at most `width` tokens, in the order in which they were begun."""
    rows: list[list[int]] = []
    room: list[tuple[int, int]] = []  # tokens left and index of each row, ascending
    for length in sorted(lengths, reverse=True):
        fits = bisect_left(room, (length, 0))
        if fits < len(room):
            left, index = room.pop(fits)
        else:
            left, index = width, len(rows)
            rows.append([])
        rows[index].append(length)
        left -= length
        room.insert(bisect_left(room, (left, index)), (left, index))
    return [tuple(row) for row in rows]
