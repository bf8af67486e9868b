"""Parts of ``streamomd.testing.check_rule``: streams, learners, oracles, merge laws."""
