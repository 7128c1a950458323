"""`lmsweep.audit`: claims from arguments, from a table or from a log."""

import csv
import io
import sys
from dataclasses import replace
from pathlib import Path

from lmsweep.orchestrator.features.audit.claims.read_claim import claim_of
from lmsweep.orchestrator.features.audit.claims.stated_claim import Claim
from lmsweep.orchestrator.features.audit.logs.read_log import read_log
from lmsweep.orchestrator.features.audit.verdict import Audited, audited
from lmsweep.trials.spec.errors import RequestError

MOST_BYTES = 100_000_000
MOST_CLAIMS = 10_000


def audit(file: str | Path | None = None, **stated: object) -> list[Audited]:
    """Return what audit says of each claim, as `lmsweep audit` shows it. Needs no GPU and no Ray.

    file: a CSV with a claim on each line, or a trainer's log; - is standard input. stated: what is claimed, by the
    names of the command's options (`tokens_per_second` for tokens/s); beside a file, what it does not state. Raises
    RequestError, a ValueError.
    """
    texts = {name: str(value) for name, value in stated.items() if value is not None}
    if file is None:
        if not texts:
            raise RequestError("nothing is claimed: give a log, a CSV, or --model, --gpus, --context and --tokens/s")
        return audited([claim_of(texts)])
    text, where = _text(file), str(file)
    if where.lower().endswith((".csv", ".tsv")):
        return audited(_table(text, where, texts))
    log = read_log(text, where)
    claim = claim_of({"name": f"{where}: {log.trainer.name}"} | log.texts | texts)
    (of_log,) = audited([claim])
    notes = [f"({log.trainer.name}: {log.trainer.note})"] if log.trainer.note else []
    return [replace(of_log, read=(*log.lines, *notes))]


def _text(file: str | Path) -> str:
    try:
        if str(file) == "-":
            content = sys.stdin.buffer.read(MOST_BYTES + 1)
        else:
            with Path(file).expanduser().open("rb") as opened:
                content = opened.read(MOST_BYTES + 1)
    except OSError as error:
        raise RequestError(f"{file}: cannot read it: {error.strerror}") from error
    if len(content) > MOST_BYTES:
        raise RequestError(f"{file}: it has more than {MOST_BYTES // 10**6} MB; give a part of it")
    return content.decode("utf-8-sig", errors="replace")


def _table(text: str, where: str, texts: dict[str, str]) -> list[Claim]:
    """Return the claims of a table, each with what `texts` state for all."""
    separator = "\t" if where.lower().endswith(".tsv") else ","
    rows = csv.DictReader(io.StringIO(text, newline=None), delimiter=separator)
    claims: list[Claim] = []
    try:
        for row in rows:
            if len(claims) == MOST_CLAIMS:
                raise RequestError(f"{where}: it has more than {MOST_CLAIMS} claims; divide it")
            claims.append(_row_claim(row, f"{where}, line {rows.line_num}: ", texts))
    except csv.Error as error:
        raise RequestError(f"{where}, line {rows.line_num + 1}: {error}; is a quote missing?") from error
    if not claims:
        raise RequestError(f"{where}: it has no claims; the first line names columns, such as model, gpus, tokens/s")
    return claims


def _row_claim(row: dict[str, str], line: str, texts: dict[str, str]) -> Claim:
    """Return the claim of a row. line: file and line, for messages."""
    if None in row:  # has the cells beyond the columns
        raise RequestError(f"{line}it has more cells than the first line has names")
    claim = claim_of(texts | {name: cell for name, cell in row.items() if cell}, line)
    try:
        claim.check_names()
    except RequestError as error:
        raise RequestError(f"{line}{error}") from error
    return claim
