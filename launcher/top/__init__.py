"""`slipstream top`: what services do at present, from two looks at their metrics."""
