"""
What `make release`, `make version`, `make lock` and `make audit` do: `python -m tests.release COMMAND`.

`checkout` reads the commit, `versions` sets and compares the version, `changelog` has the notes, `locks` the locked
dependencies; `artifacts` makes the files of a release from these, `sbom` its bills of materials, and `audit` judges the
dependencies.
"""
