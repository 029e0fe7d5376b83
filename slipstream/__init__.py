"""The library that the three services stand on."""
