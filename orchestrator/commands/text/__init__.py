"""What verbs print.

plan_text.py     a plan as text and as JSON
doctor_text.py   what the doctor found
show_table.py    prints a table: fitted to a terminal, or in another format
run_summary.py   what `run` and `trial` print at their end
"""
