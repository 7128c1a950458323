"""What is stored: the rows that a trial leaves, and the Arrow schemas of their tables.

measurement.py    what a workload yields: measurements, detail rows and files
checked.py        checks what code that is not lmsweep's yields, so that it can be stored
environment.py    the hardware and software of a trial, and the identifier of what makes results comparable
outcome.py        the status words of a workload, and the flags that question a measurement
stored_config.py  the configuration in a stored row
roles.py          what each field of a configuration means
record.py         the stored rows: records of the table `measurements`, and rows of the detail tables
attempt.py        one execution of a trial: turns what its workloads yield into rows
arrow_schema.py   the Arrow schemas, derived from the row dataclasses
"""
