"""The user's own code: where references lead, what may be called, and which state of the code was measured.

source          finds the file of a reference without running anything, and refuses what is not the user's
project         what its pyproject.toml declares, which stands in for a project that is not installed
git             asks git about a folder without running what its configuration names
digest          identifies the state of the code that a trial uses
bundle          packs the code folder for the other machines of a cluster
missing_packages what it imports that is not installed
importing       imports what a reference leads to, in the process of a trial
calling         calls it with the fields that its signature has
definitions     reads the classes and functions that its files define, by their syntax
discovery       finds models, attention, optimizers and wrappers in a folder, by their syntax
finding         what `lmsweep check` asks and finds
traceback_text  describes an error in the user's code, with the user's file and line first
"""
