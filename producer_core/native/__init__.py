"""The optional native core, written in C."""
