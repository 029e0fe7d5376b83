"""The commands of `slipstream`: options in, one call each."""
