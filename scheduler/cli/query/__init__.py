"""Code that `explain`, `simulate` and `snapshot` share: reading a cluster or a file, and printing explanations."""
