"""The demonstration of the producer's reliability features; the same as `producer-core demo`."""

import sys

from producer_core.cli import main

if __name__ == "__main__":
    main(["demo", *sys.argv[1:]], prog_name="demo_reliability_features.py")
