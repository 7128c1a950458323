"""The command, from its first moment to its last: what interrupts it, and what it says where it cannot go on."""

import os
import signal
import sys


def main() -> None:
    """Runs the command; a wrong request is one message on standard error and exit code 2."""
    hears_ctrl_c = signal.getsignal(signal.SIGINT) == signal.default_int_handler
    if hears_ctrl_c:
        # Nothing has begun that would have to be ended.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from lmsweep.orchestrator.commands.app import app
    from lmsweep.orchestrator.interrupt import ended, exit_code, heed_endings, words
    from lmsweep.orchestrator.terminal import Output, OutputError, say, say_warnings
    from lmsweep.trials.spec.config import RequestError

    say_warnings()
    Output.replace()
    try:
        heed_endings()
        if hears_ctrl_c:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            os.getcwd()
        except FileNotFoundError:
            raise RequestError("the current folder has been deleted; cd to one that exists") from None
        app()
    except RequestError as error:
        say(f"lmsweep: {error}", error=True)
        sys.exit(2)
    except OutputError as error:
        say(f"lmsweep: cannot write to standard output: {error}", error=True)
        sys.exit(1)
    except (KeyboardInterrupt, SystemExit) as end:
        if isinstance(end, SystemExit) and end.code != 128 + signal.SIGINT:
            raise
        if ended():  # typer takes it for Ctrl-C
            say(f"lmsweep: {words()}", error=True)
        sys.exit(exit_code())
    finally:
        # Only Ray and the interpreter have anything left to end: Ctrl-C while they do is no matter of exceptions.
        signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    main()
