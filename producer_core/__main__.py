"""`python -m producer_core`: the command where its script is not on the path."""

from producer_core.cli import main

main(prog_name="producer-core")
