"""What `explain`, `simulate` and `snapshot` share: a cluster read once, manifests, and answers as text."""
