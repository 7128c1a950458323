"""What is asked for: the configuration of a trial, its workloads and its identifiers. Needs only the standard library.

config.py          TrialConfig: every field of a configuration, with its default and its checks
words.py           the words that fields accept
errors.py          RequestError and UnsupportedError
rules/             combinations that no machine, or no device with these capabilities, can run, with the reason
workloads.py       one record per workload: all that planning, tables and the store ask about it
offered.py         records that installed packages add
identity.py        trial_id and measurement_id: hashes of what was asked for
model_sizes.py     the named model sizes
reference.py       references to the user's own code
installing.py      the command that installs what is missing, in the Python that runs
software_pins.py   the package versions that a trial's environment replaces
quantities.py      amounts of memory and tokens, read and written
ways/              optimizers, attentions, losses, what is compiled, ...: one record each
suggestions.py     "did you mean ...?" for misspelt words
"""
