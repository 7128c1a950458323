"""The packaged sweeps, one YAML file each. `lmsweep run NAME` runs NAME.yaml."""
