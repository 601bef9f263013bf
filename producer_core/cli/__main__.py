"""Runs the command as `python -m producer_core.cli`."""

from producer_core.cli import main

main(prog_name="producer-core")
