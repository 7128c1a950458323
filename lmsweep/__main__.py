"""`python -m lmsweep`: the command."""

from lmsweep.orchestrator.cli import main

if __name__ == "__main__":
    main()
