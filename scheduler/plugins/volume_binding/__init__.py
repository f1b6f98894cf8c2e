"""VolumeBinding: see `plugin`."""
