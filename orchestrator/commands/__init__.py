"""What each verb of the command does, and the text that it prints.

app.py           the verbs
measure.py       run
options.py       options of several verbs; checks before slow imports
read.py          table, compare
run_summary.py   what `run` prints at its end
show_table.py    prints tables and paragraphs: fitted to a terminal, or in another format
"""
