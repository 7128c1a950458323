"""What is stored: the rows that a trial leaves, and the Arrow schemas of their tables.

measurement.py    what a workload yields: measurements, detail rows and files
environment.py    the hardware and software of a trial, and the identifier of what makes results comparable
metrics.py        the registry of metrics: units, who stores them, how they are derived and printed
outcome.py        the status words of a workload, and the flags that question a measurement
flag_meanings.py  what each flag means, those of published numbers, too
roles.py          what each field of a configuration means
stored_config.py  a configuration, rebuilt from a stored row
record.py         an attempt, and its rows: records of the table `measurements`, and rows of the detail tables
arrow_schema.py   the Arrow schemas, derived from the row dataclasses
record_json.py    a record of any kind as JSON
"""
