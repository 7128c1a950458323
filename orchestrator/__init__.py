"""Orchestrator: turns a sweep file into trials and runs them through Ray Tune. Never imports torch.

The rooms, from the top down. A module imports from its own room and from those below it.

    cli           the command: its verbs and options
    commands      what each verb does, and the text that it prints
    running       a plan carried out: Ray Tune, workers, progress, rows on their way to the store
    planning      which trials run, in which order, for how long, and which do not fit
    cluster       Ray, the nodes of a cluster, and what each can hold
    sweep         the sweep file: its schema, its errors, the combinations that it asks for
    sweeps        the sweeps that come with lmsweep, one YAML file each
    interrupt     signals while something is at work that cannot be left halfway
    terminal      text on the terminal that no stored word can steer
"""

# Before anything else is imported: the current folder may hold a random.py.
from lmsweep.trials.machine.interpreter import order_search_path

order_search_path()
