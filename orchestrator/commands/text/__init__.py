"""What verbs print.

show_table.py    prints a table, or what the doctor found: fitted to a terminal, or in another format
run_summary.py   what `run` prints at its end
"""
