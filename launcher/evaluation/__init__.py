"""How well proposers draft: measured in this process or through a gateway, as a table, JSON or a plot."""
