"""The gate: runs the tests of `make test`, `make interop` and `make e2e`, and tells a failure from an accident.

Tests with the marks `processes`, `interop` and `java`, and those of `e2e/`, share few cores with other processes. Each
of them that fails runs a second time, alone, after all others. It counts as a failure only if it fails again
(CONTRIBUTING.md, "The gate"). All other tests are deterministic and get no second chance.
"""
