"""The rendered jobs against the vendors' own programs. Runs with `make conformance`; `make test` covers the cheap part."""
