"""What is computed from a run: certificates, reports, previews and its live status."""
