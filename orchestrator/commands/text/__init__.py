"""What verbs print.

plan_text.py     a plan as text
plan_output.py   a plan for programs
show_table.py    prints a table, or what the doctor found: fitted to a terminal, or in another format
run_summary.py   what `run` prints at its end
"""
