"""For authors of rules of their own: the contract, the test kit, and the package that they import."""
