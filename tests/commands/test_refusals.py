"""A value that is wrong by itself is refused before the command imports what takes seconds."""

import json
import subprocess
import sys

from tests.support.command import ROOT

SLOW = ("numpy", "pandas", "pyarrow", "scipy", "torch", "ray")
ASK = """
import contextlib, io, json, sys
from lmsweep.orchestrator.commands.app import app

found = {}
for words in json.load(sys.stdin):
    before = {*sys.modules}
    try:
        with contextlib.redirect_stderr(io.StringIO()) as said:
            app(words.split(), standalone_mode=False)
        refusal = "accepted"
    except BaseException as error:  # typer ends a command by SystemExit
        refusal = f"{type(error).__name__}: {error}"
    found[words] = [refusal, sorted({name.partition(".")[0] for name in {*sys.modules} - before})]
json.dump(found, sys.stdout)
"""
WRONG = {
    "report results --price H100": "--price H100: write DEVICE=DOLLARS",
    "report results --charts folder --format gif": "--format gif: no such format (one of: svg, png)",
    "report results -o page.pdf": "-o page.pdf: the report is an HTML file",
    "report results other": "other: a report is of one store",
    "table results --format nope": "--format nope: no such format (one of: text, markdown",
    "table results --where nope": "--where nope: write field=value",
    "compare results --format nope": "--format nope: no such format",
    "compare results --min-effect nope": "--min-effect nope: give a percentage",
    "compare results --contrast a=1 --contrast a=2": "--contrast a: given twice",
    "compare results --with published --min-effect 2%": "--with can be combined only with --where",
    "compare results --explain --fail-on slower": "--explain is about whole steps",
    "compare results other --environment --format nope": "--format nope: no such format",
    "plan quick --max-batch --price H100=1": "--price cannot be combined",
    "plan quick --for H100 --for H200": "--for is given 2 times",
    "plan quick --for H100,H200": "--for is given 2 times; a plan is for one kind of GPU",
    "plan quick --retry nope": "--retry nope: no such status",
    "plan quick --shard nope": "--shard nope: write NUMBER/COUNT",
    "run quick --shard 3/2": "--shard 3/2: write NUMBER/COUNT",
    "run quick --budget 30": "--budget 30: write a time, as in 30m",
    "run quick --budget 0s": "--budget 0s: write a time",
    "run quick --until 25:00": "--until 25:00: write a time, as in 17:30",
    "run quick --until 2020-01-01T00:00": "--until 2020-01-01T00:00: this time has passed",
    "best results --price H100": "--price H100: write DEVICE=DOLLARS",
    "best quick --budget nope": "--budget nope: write a time",
    "fits small --gpus nope": "--gpus nope: write numbers of GPUs",
    "fits small --price H100": "--price H100: write DEVICE=DOLLARS",
    "accept -o page.pdf": "-o page.pdf: the page is an HTML file",
    "bisect quick": "give --good and --bad, or --releases",
    "bisect quick --releases 2.11.0": "--releases 2.11.0: give at least two",
    "bisect quick --releases 2.11.0,2.12.0 --value nope": "--value nope: write PHASE.METRIC",
    "run quick --code nowhere": "--code nowhere: there is no such folder",
    "report results --badge b.svg --where nope": "--where nope: write field=value",
    "check quick --timeout nope": "--timeout nope: write a time",
}


def test_a_value_that_is_wrong_by_itself_is_refused_before_anything_slow_is_imported() -> None:
    command = [sys.executable, "-c", ASK]
    done = subprocess.run(command, input=json.dumps([*WRONG]), cwd=ROOT, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert {words: refusal for words, (refusal, _) in found.items() if WRONG[words] not in refusal} == {}
    slow = {words: [name for name in imported if name in SLOW] for words, (_, imported) in found.items()}
    assert {words: names for words, names in slow.items() if names} == {}
