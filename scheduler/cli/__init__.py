"""One file per command; `main` is the menu."""
