"""What each verb of the command does, and the text that it prints.

app.py           the verbs
measure.py       plan, run, trial
options.py       options of several verbs; checks before slow imports
read.py          status, table, compare, explain, diff, schema
json_schemas.py  the JSON Schema of what --format json prints
write.py         report
sweep_files.py   sweeps, show, notebooks
one_trial.py     `trial`: its software, whether it fits here, what it says while it runs
text/            what verbs print
"""
