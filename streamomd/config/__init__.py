"""The job: its specification, and the settings of the machine that runs it."""
