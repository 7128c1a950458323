"""A store as a pandas table: its rows, their statistics, and the columns that distinguish them.

open_store.py     opens a store by its location, one that ships with lmsweep by its name, or a shared one
load.py           reads every stored row and adds its statistics
process_variation.py  what a store says of how far processes differ
pooled_rows.py    pools processes that measured the same configuration into one result
code_states.py    the states of the user's code: latest, previous, older
columns.py        the columns that distinguish results, and the order of their values
selection.py      selects rows and the numbers of one value; how rates of FLOPs are counted
step_parts.py     the parts of a training step, from the modes that measure them
results.py        the tables of one store, each read on first use
"""
