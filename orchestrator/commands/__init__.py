"""What each verb of the command does, and the text that it prints.

app.py                     the verbs
measure.py                 plan, run, trial, doctor
program.py                 `plan` and `run` for programs and notebooks
read.py                    status, table, compare, diff, report, export, share
sweep_files.py             sweeps, show, init, check
code_check.py              asks whether the user's code works, and lays out the answers
notebooks.py               copies the notebooks that ship with lmsweep
plan_request.py            makes the plan that `plan` and `run` ask for
software_environments.py   makes the environments of a run, and says what a plan needs
watch.py                   `run --watch`: measures again at every save
one_trial.py               `trial`: whether it fits here, and its live line
search/                    the verbs that search: best and bisect
text/                      what verbs print
"""
