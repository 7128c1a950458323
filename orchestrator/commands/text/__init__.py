"""What verbs print.

plan_text.py     a plan as text and as JSON
show_table.py    prints a table, or what the doctor found: fitted to a terminal, or in another format
run_summary.py   what `run` and `trial` print at their end
"""
