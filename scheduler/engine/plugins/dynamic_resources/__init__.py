"""Dynamic resource allocation: pods with ResourceClaims."""
