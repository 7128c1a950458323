"""What is asked for: the configuration of a trial, its workloads and its identifiers. Needs only the standard library.

config.py          TrialConfig: every field of a configuration, with its default and its checks
words.py           the words that fields accept
errors.py          RequestError and UnsupportedError
rules.py           which combinations no machine, or no device of a kind, runs, and why
workloads.py       one record per workload: all that planning, tables and the store ask about it
identity.py        trial_id and measurement_id: hashes of what was asked for
model_sizes.py     the named model sizes
reference.py       references to the user's own code
software_pins.py   the releases in which a trial's environment differs from the installed one
quantities.py      amounts of memory, read and written
ways/              optimizers, attentions, precisions and ddp variants: one record each
suggestions.py     "did you mean ...?" for misspelt words
"""
