"""Analysis of a run: certificates, reports, previews and live status."""
