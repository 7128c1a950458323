"""What each verb of the command does, and the text that it prints.

app.py           the verbs
measure.py       plan, run, trial
options.py       options of several verbs; checks before slow imports
read.py          table, compare
write.py         report
one_trial.py     `trial`: its software, whether it fits here, its line of progress
text/            what verbs print
"""
