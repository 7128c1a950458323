"""`check`: tries a sweep's references to the user's code on this CPU, without measuring.

code_check.py    asks the process that imports the code, and lays out what it found
finding.py       what the verb asks, and what is found
check_code.py    the program of that process: a child for each reference; it alone imports torch, and what follows
check_model.py   the user's model if it is small, and on tensors without values
check_parts.py   the user's attention, optimizer, loss and training step on small tensors
check_ranks.py   the user's wrapper and sharded optimizer in ranks
"""

from typing import Annotated

import typer

from lmsweep.orchestrator.feature import Feature
from lmsweep.orchestrator.plan_request import Rare, What, takes_request
from lmsweep.orchestrator.terminal import on_terminal, say, terminal_size


@takes_request("sweep code trusted timeout")
def check(
    what: What, timeout: Annotated[str, Rare(help="Time limit for each reference: 60s, 5m, ...")] = "60s"
) -> None:
    """Try the code that a sweep refers to on this CPU; measure nothing.

    It checks imports, shapes and correctness.

    \b
    Example:
      lmsweep check quick
    """
    from lmsweep.orchestrator.sweep.ranges import seconds_of

    seconds = seconds_of(timeout, "--timeout")
    from lmsweep.orchestrator.features.check.code_check import answers, as_text, missing_from, questions
    from lmsweep.orchestrator.sweep.sweep import load_sweep

    trials = load_sweep(what.sweep, code=what.code, trusted=what.trusted).trials
    asked = questions(trials)
    if not asked:
        say(f"{what.sweep} refers to no code of your own; its trials: lmsweep plan {what.sweep}")
        return
    code = next(trial.code for trial in trials if trial.code)
    wrong = 0
    for answer in answers(asked, code, seconds):
        say(f"{as_text(answer, code, terminal_size().columns if on_terminal() else None)}\n")
        wrong += answer.is_wrong
    count = f"{len(asked)} reference{'s' * (len(asked) > 1)}"
    say(f"{count}, {wrong} with errors" if wrong else f"{count}, no errors")
    if wrong:
        if absent := missing_from(asked, code):
            say(absent)
        raise typer.Exit(2)


feature = Feature(name="check", place=-2, verbs=(check,))
