"""Our artefacts against the vendors' own sources. `make test` runs the cheap half; this room needs the sources themselves."""
