"""What each verb of the command does, and the text that it prints.

app.py            the verbs
best.py           best
best_sweep.py     the search of `best` through a sweep, and what it says at its end
best_transfer.py  what `best STORE --for DEVICE` prints
bisect.py         bisect
bisect_sweep.py   the search of `bisect` through releases, and what it says at its end
measure.py        plan, run, trial, doctor
program.py        `plan` and `run` for programs and notebooks
read.py           status, table, compare, diff, report, export, share
sweep_files.py    sweeps, show, init, check
code_check.py     asks whether the user's code works, and lays out the answers
notebooks.py      copies the notebooks that ship with lmsweep
plan_request.py   makes the plan that `plan` and `run` ask for
software_environments.py  makes the environments of a run, and says what a plan needs
watch.py          `run --watch`: measures again at every save
plan_text.py      a plan as text and as JSON
doctor_text.py    what the doctor found
show_table.py     prints a table: fitted to a terminal, or in another format
run_summary.py    what `run` and `trial` print at their end
one_trial.py      `trial`: whether it fits here, and its live line
"""
