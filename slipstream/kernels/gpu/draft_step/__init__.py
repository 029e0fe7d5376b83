"""A whole draft step in one kernel, or in five a layer: the same phases, with barriers or launches between them."""
