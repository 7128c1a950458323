"""The entry point of the command: signals, error messages and exit codes."""

import atexit
import gc
import os
import signal
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType


_MEASURING = ("torch", "ray", "nvtx", "pynvml", "psutil")
"""Modules that only measuring and planning need (requirements-read.txt)."""


def main() -> None:
    """Run the command. A wrong request prints one message on standard error and exits with 2.

    Exit codes:

    - 0: done. Trials that ended as `oom`, `predicted_oom` or `unsupported` are results.
    - 1: a trial ended as `error`, `lost` or `timeout`, `compare --fail-on` found what it was asked for, `accept` did
      not pass, the results cannot be written, or Ray or lmsweep itself failed.
    - 2: the request is wrong; nothing has run.
    - 128 and the number of a signal: ended by it. 130: Ctrl-C, 143: SIGTERM, 129: SIGHUP, 138: SIGUSR1.
    """
    gc.set_threshold(20_000, 20, 50)  # else Python looks at every object ten times a report: a tenth of its time
    atexit.register(gc.freeze)  # else Python visits every object before it ends: after Ray, half a second of a core
    python_handles_ctrl_c = signal.getsignal(signal.SIGINT) == signal.default_int_handler
    if python_handles_ctrl_c:
        # Until the command starts there is nothing to clean up, so let the signal kill the process.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from lmsweep.orchestrator.interrupt import RayFailedError, cause, exit_code, handle, handle_termination
    from lmsweep.orchestrator.terminal import Output, OutputError, Wanted, say, say_warnings
    from lmsweep.trials.spec.config import RequestError

    say_warnings()
    Output.replace()
    try:
        from lmsweep.orchestrator.commands.app import app  # an installed feature may be wrong

        handle_termination()
        if python_handles_ctrl_c:
            handle(signal.SIGINT, signal.default_int_handler)
        try:
            os.getcwd()
        except FileNotFoundError:
            raise RequestError("the current folder has been deleted; change to one that exists") from None
        if sys.flags.optimize > 1:
            raise RequestError("Python leaves out docstrings, which Ray and --help read; unset PYTHONOPTIMIZE")
        if not os.environ.get("HOME") or not os.environ.get("USER", os.environ.get("LOGNAME")):  # as in a container
            from lmsweep.trials.machine.scratch import ensure_user

            ensure_user()
        app()
    except RequestError as error:
        if Wanted.traceback:
            import traceback

            traceback.print_exc()
        say(f"lmsweep: {error}", error=True)
        sys.exit(2)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in _MEASURING:
            raise
        from lmsweep.trials.spec.installing import install_extra

        say(
            f"lmsweep: this needs {missing}, which is not installed here; reading results works without. To measure: "
            f"{install_extra()}",
            error=True,
        )
        sys.exit(2)
    except RayFailedError as error:
        say(f"lmsweep: {error}", error=True)
        sys.exit(1)
    except OutputError as error:
        say(f"lmsweep: cannot write to standard output: {error}", error=True)
        sys.exit(1)
    except (KeyboardInterrupt, SystemExit) as end:
        of_ctrl_c = 128 + signal.SIGINT  # typer's exit code after any KeyboardInterrupt, also by a termination signal
        if isinstance(end, SystemExit) and end.code != of_ctrl_c:
            raise
        if exit_code() != of_ctrl_c:  # a termination signal, which nothing has named yet
            try:
                say(f"lmsweep: {cause()}", error=True)
            except BrokenPipeError:  # nobody reads it, as after `2>&1 | head`; Python's last flush would fail, too
                os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        sys.exit(exit_code())
    finally:
        # Only Ray and the interpreter still shut down: Ctrl-C now ends the process without an exception.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        if not Wanted.traceback:
            sys.excepthook = _in_one_line  # for what no clause above catches; here, because typer sets its own


def _in_one_line(kind: type[BaseException], error: BaseException, trace: "TracebackType | None") -> None:
    """Report an error in lmsweep itself by one line, and keep its traceback in a file."""
    import tempfile
    import traceback

    from lmsweep.orchestrator.terminal import say

    with tempfile.NamedTemporaryFile("w", prefix="lmsweep-error-", suffix=".txt", delete=False) as file:
        file.writelines(traceback.format_exception(kind, error, trace))
    words = " ".join(str(error).split())
    say(
        f"lmsweep: unexpected {kind.__name__}{f': {words}' if words else ''}. This is an error in lmsweep. "
        f"Its traceback is in {file.name}, and lmsweep --debug prints it",
        error=True,
    )


if __name__ == "__main__":
    main()
