"""What each verb of the command does, and the text that it prints.

app.py           the verbs
measure.py       run
options.py       options of several verbs; checks before slow imports
read.py          table, compare
text/            what verbs print
"""
