"""Run the command line with `python -m producer_core`."""

from producer_core.cli import main

main(prog_name="producer-core")
