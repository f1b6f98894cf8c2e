"""The product and the plain reference, told the same."""

from tests.build import Json
from tests.conformance.product import ProductSubject
from tests.plugins.lives import Applied, Deleted
from tests.reference.cluster import Cluster


class Told:
    """Both under one configuration."""

    def __init__(self, config: Json | None) -> None:
        self.product = ProductSubject(config)
        self.reference = Cluster()
        self.config = config

    def tell(self, change: Applied | Deleted) -> None:
        """An object came, changed, or is gone."""
        if isinstance(change, Applied):
            self.product.apply(change.object)
            self.reference.apply(change.object)
        else:
            self.product.delete(*change)
            self.reference.delete(*change)
