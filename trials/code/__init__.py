"""The user's code: where references lead, what may be called, and which state of the code was measured.

source.py              finds the file of a reference without running anything, and refuses what is not the user's
ownership.py           which files are the user's own: not those of Python, of installers and of other tools
project.py             what a pyproject.toml declares; it stands in for a project that is not installed
git.py                 asks git about a folder without running what its configuration names
hub_configurations.py  configurations of models: those that ship, and which ones transformers can build
digest.py              identifies the state of the code that a trial uses, and packs it for other machines
missing_packages.py    modules that the code imports and that are not installed, and the packages that have them
importing.py           imports what a reference leads to, in the process of a trial
calling.py             calls it with the fields that its signature has
traceback_text.py      describes an error in the user's code, with the user's file and line first
"""
