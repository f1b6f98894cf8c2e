"""The refusal that ends a command of the release with exit code 2."""


class ReleaseError(Exception):
    """Input, or a checkout, of which no release can be made; the text is one line for the user."""
