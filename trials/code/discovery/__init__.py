"""Models, attention, optimizers and wrappers that a folder defines, found by their syntax: nothing is imported.

definitions.py         reads the classes and functions of the folder's files
model_settings.py      how a model is built whose class takes an object with settings
model_candidates.py    classes that are probably models
discover.py            everything that a sweep could measure
"""
